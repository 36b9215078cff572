"""Writes a platform: a client, which is also the agent, and servers around a switch, each with a link of its own.

    python bench/star.py > star.toml
"""

import argparse


def star(servers, bandwidth):
    """The platform as text; `bandwidth` of each link in bytes per second."""
    names = [f"s{number}" for number in range(servers)]
    host = '[[host]]\nname = "{}"\nspeed = "1Gf"\nproperties = {{ {} }}\n'
    text = host.format("client", 'role = "client, agent"')
    text += "".join(host.format(name, 'role = "server", memory = "64GiB"') for name in names)
    hosts = ", ".join(f'"{name}"' for name in ["client", *names])
    return text + f'[[star]]\nname = "lan"\nhosts = [{hosts}]\nbandwidth = "{bandwidth}Bps"\nlatency = "100us"\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--bandwidth", type=float, default=12.5e6, help="of each link, bytes a second")
    options = parser.parse_args()
    print(star(options.servers, options.bandwidth), end="")


if __name__ == "__main__":
    main()
