"""Writes a platform: two clusters of eight servers with 100 Mb/s each, and a third site with the client, which is also the agent.

    python bench/sites.py --case 2 > sites.toml

Case 1: no link between the clusters is a bottleneck. Case 2: they are joined by one link of 50 Mb/s and 10 ms.
A file server of 1 Gb/s beside the first cluster has the folder that all servers share.

`--slower 4` divides all bandwidths by four and multiplies latencies: the same network in slow motion, for a testbed on a machine
whose cores cannot carry all hosts at full rate.
"""

import argparse

BANDWIDTH = 12.5e6
FILES_BANDWIDTH = 125e6
BETWEEN = {1: (1.25e9, 100), 2: (6.25e6, 10_000)}


def sites(case, servers=8, slower=1.0):
    """The platform as text."""
    bandwidth, latency = BETWEEN[case]
    own, bandwidth = f"{BANDWIDTH / slower:g}Bps", f"{bandwidth / slower:g}Bps"
    text = '[[host]]\nname = "client"\nspeed = "1Gf"\nproperties = { role = "client, agent" }\n'
    for site in "ab":
        text += f'[[cluster]]\nname = "{site}"\nhosts = "{site}-[1-{servers}]"\nspeed = "1Gf"\nbandwidth = "{own}"\n'
        text += f'latency = "{100 * slower:g}us"\nproperties = {{ role = "server", memory = "64GiB", storage = "files" }}\n'
        text += f'[[link]]\nname = "to-{site}"\nbandwidth = "{own}"\nlatency = "{1000 * slower:g}us"\nsharing = "splitduplex"\n'
        text += f'[[route]]\nfrom = "client"\nto = "{site}"\nlinks = ["to-{site}:up"]\n'
    text += f'[[link]]\nname = "between"\nbandwidth = "{bandwidth}"\nlatency = "{latency * slower:g}us"\nsharing = "splitduplex"\n'
    text += '[[route]]\nfrom = "a"\nto = "b"\nlinks = ["between:up"]\n'
    text += '[[host]]\nname = "files"\nspeed = "1Gf"\nproperties = { role = "none" }\n'
    text += f'[[link]]\nname = "to-files"\nbandwidth = "{FILES_BANDWIDTH / slower:g}Bps"\nlatency = "{100 * slower:g}us"\nsharing = "splitduplex"\n'
    text += '[[route]]\nfrom = "files"\nto = "a"\nlinks = ["to-files:up"]\n'
    return text + '[[route]]\nfrom = "files"\nto = "b"\nlinks = ["to-files:up", "between:up"]\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", type=int, choices=[1, 2], default=1)
    parser.add_argument("--servers", type=int, default=8, help="in each cluster")
    parser.add_argument("--slower", type=float, default=1.0, metavar="N", help="everything N times slower")
    options = parser.parse_args()
    print(sites(options.case, options.servers, options.slower), end="")


if __name__ == "__main__":
    main()
