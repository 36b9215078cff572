"""Writes a platform: two clusters of eight servers with 100 Mb/s each, and a third site with the client, which is the agent too.

    python bench/sites.py --case 2 > sites.toml

Case 1: no link between the clusters is a bottleneck. Case 2: they are joined by one link of 50 Mb/s and 10 ms.
"""

import argparse

BANDWIDTH = 12.5e6
BETWEEN = {1: (1.25e9, "100us"), 2: (6.25e6, "10ms")}


def sites(case, servers=8):
    """The platform as text."""
    bandwidth, latency = BETWEEN[case]
    text = '[[host]]\nname = "client"\nspeed = "1Gf"\nproperties = { role = "client, agent" }\n'
    for site in "ab":
        text += f'[[cluster]]\nname = "{site}"\nhosts = "{site}-[1-{servers}]"\nspeed = "1Gf"\nbandwidth = "{BANDWIDTH}Bps"\n'
        text += 'latency = "100us"\nproperties = { role = "server", memory = "64GiB" }\n'
        text += f'[[link]]\nname = "to-{site}"\nbandwidth = "{BANDWIDTH}Bps"\nlatency = "1ms"\nsharing = "splitduplex"\n'
        text += f'[[route]]\nfrom = "client"\nto = "{site}"\nlinks = ["to-{site}:up"]\n'
    text += f'[[link]]\nname = "between"\nbandwidth = "{bandwidth}Bps"\nlatency = "{latency}"\nsharing = "splitduplex"\n'
    return text + '[[route]]\nfrom = "a"\nto = "b"\nlinks = ["between:up"]\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", type=int, choices=[1, 2], default=1)
    parser.add_argument("--servers", type=int, default=8, help="in each cluster")
    options = parser.parse_args()
    print(sites(options.case, options.servers), end="")


if __name__ == "__main__":
    main()
