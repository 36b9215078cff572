//! Whole files, right and wrong, in both formats.

use std::collections::BTreeMap;

use super::*;

fn read(text: &str) -> Result<Platform, PlatformError> {
    Platform::parse(text, "p", &mut |name| match name {
        "speed.profile" => Ok("0 1.0\n5 0.5\n".to_owned()),
        _ => Err("no such file".to_owned()),
    })
}

fn xml(body: &str) -> String {
    format!("<?xml version='1.0'?>\n<platform version='4.1'>\n{body}\n</platform>")
}

fn names(platform: &Platform, src: &str, dst: &str) -> Vec<String> {
    let route = platform.route(platform.host(src).unwrap(), platform.host(dst).unwrap()).unwrap();
    route.links.iter().map(|link| platform.links()[link.0 as usize].name.clone()).collect()
}

fn refused(text: &str, message: &str) {
    let error = read(text).expect_err(message).to_string();
    assert!(error.starts_with(message), "got:      {error}\nexpected: {message}");
}

const OFFICE: &str = r#"
[config]
"network/model" = "CM02"
[[host]]
name = "laptop"
speed = "2Gf"
cores = 2
properties = { role = "client", floor = 3 }
[[host]]
name = "s1"
speed = 1e9
[[link]]
name = "uplink"
bandwidth = "100Mbps"
latency = "5ms"
sharing = "splitduplex"
[[star]]
name = "office"
bandwidth = "1Gbps"
latency = 0.0001
[[cluster]]
name = "c"
hosts = "node-[08-10]"
speed = "10Gf"
cores = 4
bandwidth = "1GBps"
sharing = "shared"
backbone = { bandwidth = "10GBps", latency = "10us", sharing = "fatpipe" }
[[connect]]
from = "office"
to = "c"
links = ["uplink:up"]
[[profile]]
link = "uplink"
kind = "bandwidth"
events = [[1, 1e6], [2.5, 2e6]]
loop_after = "1s"
[[profile]]
host = "s1"
kind = "speed"
file = "speed.profile"
"#;

#[test]
fn toml_joins_a_star_and_a_cluster() {
    let platform = read(OFFICE).unwrap();
    assert_eq!(platform.hosts().len(), 5);
    assert_eq!(platform.hosts()[0].properties["floor"], "3");
    assert_eq!(platform.config()["network/model"], "CM02");
    assert_eq!(names(&platform, "laptop", "s1"), ["office_link_laptop_UP", "office_link_s1_DOWN"]);
    assert_eq!(
        names(&platform, "laptop", "node-09"),
        ["office_link_laptop_UP", "uplink_UP", "c_backbone", "c_link_09"]
    );
    assert_eq!(names(&platform, "node-10", "s1"), ["c_link_10", "c_backbone", "uplink_DOWN", "office_link_s1_DOWN"]);
    let profiles = platform.profiles();
    assert_eq!((profiles.len(), profiles[0].loop_after_s), (3, Some(1.0)));
    assert_eq!(profiles[2].events, [(0.0, 1.0), (5.0, 0.5)]);
}

#[test]
fn toml_finds_the_shortest_chain_of_routes() {
    let host = |name: &str| format!("[[host]]\nname = '{name}'\nspeed = 1\n");
    let link = |name: &str| format!("[[link]]\nname = '{name}'\nbandwidth = 1\n");
    let route = |a: &str, b: &str, l: &str| format!("[[route]]\nfrom = '{a}'\nto = '{b}'\nlinks = ['{l}']\n");
    let text = "routing = 'shortest'\n".to_owned()
        + &["a", "b", "c"].map(host).concat()
        + &["x", "y"].map(link).concat()
        + &route("a", "b", "x")
        + &route("b", "c", "y");
    let platform = read(&text).unwrap();
    assert_eq!(names(&platform, "a", "c"), ["x", "y"]);
    assert_eq!(names(&platform, "c", "a"), ["y", "x"]);
    assert_eq!(names(&platform, "c", "c"), ["__loopback__"]);
}

#[test]
fn toml_mistakes_have_a_place() {
    refused(
        "[[host]]\nname = 'a'\nspeed = 1\ncolour = 'red'",
        "p:4:1: unknown key 'colour' in host; it has: name, speed",
    );
    refused("[[host]]\nname = 'a'\nspeed = '2GF'", "p:3:9: unit 'GF' of speed '2GF' is unknown");
    refused("[[host]]\nname = 'a'\nspeed = nan", "p:1:1: speed of host 'a' is NaN flop/s; it must be a number above 0");
    refused("[[host]]\nname = 'a'\nspeed = 1\ncores = 0", "p:1:1: host 'a' has 0 cores");
    refused(
        "[[host]]\nname = 'a'\nspeed = 1\n[[host]]\nname = 'a'\nspeed = 1",
        "p:4:1: the name 'a' is taken by a host",
    );
    refused("[[link]]\nname = 'l'\nbandwidth = -1", "p:1:1: bandwidth of link 'l' is -1 B/s");
    refused("[[link]]\nname = 'l'\nbandwidth = 1\nlatency = inf", "p:1:1: latency of link 'l' is inf s");
    refused("[[host]]\nname = 'a'", "p:1:1: host lacks the key 'speed'");
    refused("[[host]]\nname = \n", "p:2:8: malformed TOML:");
    refused("", "p:1:1: the platform has no host");
    let two = "[[host]]\nname = 'a'\nspeed = 1\n[[host]]\nname = 'b'\nspeed = 1\n[[link]]\nname = 'l'\nbandwidth = 1\n";
    let route = |from: &str, link: &str| format!("{two}[[route]]\nfrom = '{from}'\nto = 'b'\nlinks = ['{link}']\n");
    assert!(read(&route("a", "l")).is_ok());
    refused(&route("x", "l"), "p:11:8: route from unknown host or router 'x'; known hosts or routers: a, b");
    refused(&route("a", "m"), "p:13:10: route names unknown link 'm'; known links: l");
    refused(&route("a", "l:up"), "p:13:10: route names link 'l' is not split-duplex");
    refused(
        &(route("a", "l") + "[[route]]\nfrom = 'b'\nto = 'a'\nlinks = ['l']"),
        "p:14:1: the route from 'b' to 'a' is",
    );
}

#[test]
fn xml_mistakes_have_a_place() {
    let zone = |body: &str| xml(&format!("<zone id='z' routing='Full'>\n{body}\n</zone>"));
    let hosts = "<host id='a' speed='1Gf'/><host id='b' speed='1Gf'/>\n<link id='l' bandwidth='1kBps'/>\n";
    let route = |attributes: &str, link: &str| zone(&format!("{hosts}<route {attributes}><link_ctn {link}/></route>"));
    assert!(read(&route("src='a' dst='b'", "id='l'")).is_ok());
    refused(&route("src='a' dst='x'", "id='l'"), "p:6:1: route 'dst': unknown host or router 'x'");
    refused(&route("src='a' dst='b'", "id='m'"), "p:6:24: unknown link 'm'; known links: l");
    refused(&route("src='a' dst='b'", "id='l' direction='UP'"), "p:6:24: link 'l' is not split-duplex");
    refused(&route("src='a' dst='z'", "id='l'"), "p:6:1: 'z' is not in zone 'z'");
    refused(&zone("<link id='l' bandwidth='-1Bps'/>"), "p:4:1: bandwidth of link 'l' is -1 B/s");
    refused(
        &zone("<link id='l' bandwidth='nan'/>"),
        "p:4:1: attribute 'bandwidth': bandwidth 'nan' does not start with",
    );
    refused(&zone("<link id='l' bandwidth='1GB'/>"), "p:4:1: attribute 'bandwidth': unit 'GB' of bandwidth '1GB'");
    refused(&zone("<link id='l' bandwidth='1' sharing_policy='WIFI'/>"), "p:4:1: sharing policy WIFI is not supported");
    refused(&zone("<host id='a' speed='1' colour='red'/>"), "p:4:1: element 'host' has no attribute 'colour'; it has");
    refused(&zone("<host id='a' speed='1,2' pstate='2'/>"), "p:4:1: attribute 'speed': performance state 2 is not");
    refused(&zone("<host id='a' speed='1' speed_file='x'/>"), "p:4:1: profile 'x': no such file");
    refused(&zone("<zone id='z' routing='Full'/>"), "p:4:1: the name 'z' is taken by a zone");
    refused(&xml("<zone id='z' routing='Wifi'/>"), "p:3:1: routing 'Wifi' is not supported yet");
    refused(&zone("<host id='a' speed='1'/>").replace("</zone>", "</zon>"), "p:5:1: malformed XML: ");
    refused("<platform version='3'/>", "p:1:1: version 3 of the platform format is not known");
    let deep = "<zone id='#' routing='Full'>".repeat(100);
    let deep: String = deep.split('#').enumerate().map(|(i, part)| format!("{part}z{i}")).collect();
    refused(&xml(&(deep + &"</zone>".repeat(100))), "p:3:");
}

#[test]
fn gateways_must_lie_in_their_zone() {
    let text = |gateway: &str| {
        xml(&format!(
            "<zone id='w' routing='Full'><zone id='u' routing='Full'><host id='a' speed='1'/></zone>\
             <zone id='v' routing='Full'><host id='b' speed='1'/></zone><link id='l' bandwidth='1'/>\n\
             <zoneRoute src='u' dst='v' gw_src='a' gw_dst='{gateway}'><link_ctn id='l'/></zoneRoute></zone>"
        ))
    };
    assert_eq!(names(&read(&text("b")).unwrap(), "b", "a"), ["l"]);
    refused(&text("a"), "p:4:1: gateway 'a' is not in zone 'v'");
    refused(&text("v"), "p:4:1: gateway 'v' is a zone; it must be a host or router");
    refused(&text("x"), "p:4:1: zoneRoute 'gw_dst': unknown gateway 'x'");
}

#[test]
fn builders_need_no_file() {
    let mut builder = PlatformBuilder::new();
    let hosts: Vec<HostId> = (0..3).map(|i| builder.add_host(&format!("h{i}"), 1e9, 1).unwrap()).collect();
    let spokes: Vec<(HostId, LinkId, LinkId)> = hosts
        .iter()
        .map(|host| {
            let (up, down) = builder.add_duplex_link(&format!("l{}", host.0), 1e8, 1e-4).unwrap();
            (*host, up, down)
        })
        .collect();
    builder.add_star(&spokes).unwrap();
    let platform = builder.build().unwrap();
    assert_eq!(names(&platform, "h0", "h2"), ["l0_UP", "l2_DOWN"]);
    assert_eq!(platform.route(hosts[0], hosts[2]).unwrap().latency_s, 2e-4);
}

#[test]
fn missing_routes_are_named() {
    let platform = read("[[host]]\nname = 'a'\nspeed = 1\n[[host]]\nname = 'b'\nspeed = 1\n").unwrap();
    let error = platform.route(HostId(0), HostId(1)).unwrap_err();
    assert_eq!(error.to_string(), "no route from 'a' to 'b'");
    assert_eq!(platform.route(HostId(1), HostId(1)).unwrap().links, [LOOPBACK]);
}

#[test]
fn clusters_refuse_what_is_not_modelled() {
    let cluster = |id: &str, topology: &str| {
        format!("<cluster id='{id}' prefix='{id}' suffix='' radical='0-3' speed='1Gf' bw='1MBps' lat='0' {topology}/>")
    };
    let tree = "topology='FAT_TREE' topo_parameters='1;4;1;1'";
    assert_eq!(
        names(&read(&xml(&cluster("c", tree))).unwrap(), "c0", "c3"),
        ["link_from_0_7_0_UP", "link_from_3_7_3_DOWN"]
    );
    refused(&xml(&cluster("c", "topology='HYPERCUBE'")), "p:3:1: topology 'HYPERCUBE' is unknown");
    refused(&xml(&cluster("c", "topology='TORUS'")), "p:3:1: element 'cluster' lacks the attribute 'topo_parameters'");
    refused(
        &xml(&cluster("c", "topology='TORUS' topo_parameters='2,3'")),
        "p:3:1: topo_parameters '2,3' need 6 hosts, but there are 4",
    );
    refused(&xml(&cluster("c", "topology='TORUS' topo_parameters='2,x'")), "p:3:1: topo_parameters '2,x' must be");
    refused(
        &xml(&cluster("c", "topology='DRAGONFLY' topo_parameters='2,1;1,1;1,1;2'")),
        "p:3:1: topo_parameters '2,1;1,1;1,1;2' have 2 groups, but only 1 blades",
    );
    refused(
        &xml(&cluster("c", "topology='DRAGONFLY' topo_parameters='2;1;1;2'")),
        "p:3:1: topo_parameters '2;1;1;2' must be numbers above 0",
    );
    refused(
        &xml(&cluster("c", "topology='FAT_TREE' topo_parameters='1;5;1;1'")),
        "p:3:1: topo_parameters '1;5;1;1' need 5",
    );
    refused(
        &xml(&(cluster("c", tree) + "\n" + &cluster("d", tree))),
        "p:4:1: link 'link_from_0_7_0_DOWN' is defined twice",
    );
}

#[test]
fn tori_and_dragonflies_have_routes_inside_and_to_their_router() {
    let cluster = |more: &str| {
        xml(&format!(
            "<zone id='z' routing='Full'><cluster id='c' prefix='n' suffix='' radical='0-11' speed='1Gf' bw='1MBps'
             lat='1ms' loopback_bw='9MBps' router_id='door' {more}/>
             <zone id='o' routing='Full'><host id='out' speed='1Gf'/></zone><link id='l' bandwidth='1MBps' latency='5ms'/>
             <zoneRoute src='c' dst='o' gw_src='door' gw_dst='out'><link_ctn id='l'/></zoneRoute></zone>"
        ))
    };
    let torus = read(&cluster("topology='TORUS' topo_parameters='3,2,2'")).unwrap();
    assert_eq!(names(&torus, "n0", "n2"), ["c_link_from_2_to_0_DOWN"]);
    assert_eq!(
        names(&torus, "n1", "n11"),
        ["c_link_from_1_to_2_UP", "c_link_from_2_to_5_UP", "c_link_from_5_to_11_UP"]
    );
    let dragonfly =
        read(&cluster("topology='DRAGONFLY' sharing_policy='SHARED' topo_parameters='2,4;1,3;3,2;2'")).unwrap();
    assert_eq!(
        names(&dragonfly, "n0", "n1"),
        ["local_link_from_router_0_to_node_0_0", "local_link_from_router_0_to_node_1_1"]
    );
    assert_eq!(
        names(&dragonfly, "n4", "n11"),
        [
            "local_link_from_router_2_to_node_0_4",
            "green_link_in_chassis_0_between_routers_1_and_2_14",
            "blue_link_between_group_0_and_1_routers_1_and_3_18",
            "green_link_in_chassis_0_between_routers_0_and_2_16",
            "local_link_from_router_5_to_node_1_11"
        ]
    );
    let (green, blue) =
        ("green_link_in_chassis_0_between_routers_0_and_1_12", "blue_link_between_group_0_and_1_routers_1_and_3_18");
    let bandwidth = |name: &str| dragonfly.links()[dragonfly.link(name).unwrap().0 as usize].bandwidth;
    assert_eq!(["local_link_from_router_0_to_node_0_0", green, blue].map(bandwidth), [1e6, 2e6, 4e6]);
    let limited = |more: &str| read(&cluster(&format!("limiter_link='2MBps' {more}"))).unwrap();
    let torus_limited = limited("topology='TORUS' topo_parameters='3,2,2'");
    assert_eq!(names(&torus_limited, "n0", "n2"), ["c_link_0_limiter", "c_link_from_2_to_0_DOWN", "c_link_2_limiter"]);
    let tree_limited = limited("topology='FAT_TREE' topo_parameters='1;12;1;1'");
    assert_eq!(
        names(&tree_limited, "n1", "n2"),
        ["c_link_1_limiter", "link_from_1_23_1_UP", "link_from_2_23_2_DOWN", "c_link_23_limiter", "c_link_2_limiter"]
    );
    let dragonfly_limited = limited("topology='DRAGONFLY' topo_parameters='2,4;1,3;3,2;2'");
    let limiters: Vec<String> =
        names(&dragonfly_limited, "n4", "n11").into_iter().filter(|name| name.ends_with("limiter")).collect();
    assert_eq!(limiters, [4, 21, 22, 20, 18, 11].map(|number| format!("c_link_{number}_limiter")));
    for platform in [&torus, &dragonfly] {
        assert_eq!(names(platform, "n7", "n7"), ["c_link_7_loopback"]);
        assert_eq!(names(platform, "n7", "out"), ["l"]);
        let route = platform.route(platform.host("n4").unwrap(), platform.host("n11").unwrap()).unwrap();
        assert!((route.latency_s - 1e-3 * route.links.len() as f64).abs() < 1e-15);
    }
}

#[test]
fn peers_are_as_far_apart_as_their_places() {
    let platform = read(&xml("<zone id='w' routing='Vivaldi'>
        <peer id='p' speed='1Gf' bw_in='1MBps' bw_out='2MBps' coordinates='3 4 1'/>
        <peer id='q' speed='1Gf' bw_in='1MBps' bw_out='2MBps' coordinates='0 0 2'/></zone>"))
    .unwrap();
    assert_eq!(names(&platform, "p", "q"), ["link_p_UP", "link_q_DOWN"]);
    let bandwidth = |name: &str| platform.links()[platform.link(name).unwrap().0 as usize].bandwidth;
    assert_eq!(["link_p_UP", "link_p_DOWN"].map(bandwidth), [2e6, 1e6]);
    let latency_s = |src, dst| platform.route(HostId(src), HostId(dst)).unwrap().latency_s;
    assert_eq!((latency_s(0, 1), latency_s(1, 0)), (0.008, 0.008));
    refused(
        &xml("<zone id='w' routing='Vivaldi'>\n<peer id='p' speed='1Gf' bw_in='1' bw_out='1' coordinates='3'/></zone>"),
        "p:4:1: ",
    );
}

#[test]
fn bypasses_win_one_way_over_the_zones_routes() {
    let platform = read(&xml("<zone id='w' routing='Full'>
        <zone id='a' routing='Full'><host id='h' speed='1Gf'/><host id='i' speed='1Gf'/>
        <link id='inside' bandwidth='1MBps' latency='1ms'/><link id='short' bandwidth='1MBps' latency='1ms'/>
        <route src='h' dst='i'><link_ctn id='inside'/></route>
        <bypassRoute src='i' dst='h'><link_ctn id='short'/></bypassRoute></zone>
        <zone id='b' routing='Full'><host id='k' speed='1Gf'/></zone>
        <link id='slow' bandwidth='1MBps' latency='9ms'/><link id='fast' bandwidth='1MBps' latency='1ms'/>
        <zoneRoute src='a' dst='b' gw_src='h' gw_dst='k'><link_ctn id='slow'/></zoneRoute>
        <bypassZoneRoute src='a' dst='b' gw_src='h' gw_dst='k'><link_ctn id='fast'/></bypassZoneRoute></zone>"))
    .unwrap();
    assert_eq!(names(&platform, "h", "i"), ["inside"]);
    assert_eq!(names(&platform, "i", "k"), ["short", "fast"]);
    assert_eq!(names(&platform, "k", "i"), ["slow", "inside"]);
}

#[test]
fn an_outline_says_zones_routes_and_spokes() {
    use super::outline::{Member, Shape};

    let text = xml(
        "<zone id='all' routing='Floyd'>
           <zone id='one' routing='Full'><host id='a' speed='1Gf'/></zone>
           <cluster id='c' prefix='n' suffix='' radical='0-3' speed='1Gf' bw='1MBps' lat='1us' bb_bw='2MBps' bb_lat='0'/>
           <link id='wan' bandwidth='1MBps' latency='1ms' sharing_policy='SPLITDUPLEX'/>
           <zoneRoute src='one' dst='c' gw_src='a' gw_dst='nc_router'><link_ctn id='wan' direction='UP'/></zoneRoute>
         </zone>",
    );
    let platform = read(&text).unwrap();
    let outline = platform.outline();
    assert_eq!((outline.name.as_str(), outline.routing(), outline.host_count()), ("all", "Floyd", 5));
    let Shape::Routes { routes: ways, .. } = &outline.shape else { panic!("{outline:?}") };
    let [way] = &ways[..] else { panic!("{ways:?}") };
    assert_eq!((way.from, way.to, way.is_bidirectional), (0, 1, true));
    assert_eq!(platform.cable_name(way.links[0]), "wan");
    let Member::Zone(cluster) = &outline.members[1] else { panic!("{outline:?}") };
    let Shape::Star(arms) = &cluster.shape else { panic!("{cluster:?}") };
    let names: Vec<&str> = arms[3].up.iter().map(|link| platform.links()[link.0 as usize].name.as_str()).collect();
    assert_eq!((arms.len(), names), (4, vec!["c_link_3_UP", "c_backbone"]));
}

fn toml(text: &str) -> Result<Platform, PlatformError> {
    Platform::parse(text, "p.toml", &mut |_| Err("no files".to_owned()))
}

/// The error of an XML zone with that content, which is on line 2.
fn wrong_zone(content: &str) -> String {
    let text = format!("<platform version='4.1'><zone id='z' routing='Full'>\n{content}</zone></platform>");
    Platform::parse(&text, "z.xml", &mut |_| Ok("0 1\nLOOPAFTER 0\n".to_owned())).unwrap_err().to_string()
}

#[test]
fn what_would_be_dropped_is_refused_with_its_place() {
    let cluster =
        |more: &str| format!("<cluster id='c' prefix='n' radical='0-3' speed='1Gf' bw='1MBps' lat='1ms' {more}/>");
    let cases = [
        (cluster("sharing_policy='SHRED'"), "z.xml:2:1: sharing policy 'SHRED' is unknown"),
        (cluster("sharing_policy='FATPIPE'"), "z.xml:2:1: links of a cluster are SHARED or SPLITDUPLEX"),
        (cluster("state_file='f'"), "z.xml:2:1: profile 'f': the profile restarts every 0 s"),
        ("<host id='a' speed='1Gf' speed_file='f'/>".into(), "z.xml:2:1: profile 'f': the profile restarts every 0 s"),
        ("<link id='l' bandwidth='1'><foo/></link>".into(), "z.xml:2:28: element 'foo' is unknown in a link"),
        ("<host id='a' speed='1Gf'/> junk".into(), "z.xml:1:25: there is text in element 'zone', which has none: 'junk'"),
        (
            "<zone id='v' routing='Vivaldi'>\n<zone id='w' routing='Vivaldi'/></zone>".into(),
            "z.xml:3:1: zone 'w' is in a Vivaldi zone and has no gateway: give it a router 'router_w' with coordinates",
        ),
        (
            "<zone id='x' routing='Full'><host id='a' speed='1f'/></zone><zone id='y' routing='Full'><host id='b' speed='1f'/></zone>\n\
             <link id='l' bandwidth='1'/><bypassRoute src='a' dst='b'><link_ctn id='l'/></bypassRoute>"
                .into(),
            "z.xml:3:29: a bypassRoute joins two hosts or routers of one zone",
        ),
    ];
    for (content, expected) in cases {
        let error = wrong_zone(&content);
        assert!(error.starts_with(expected), "{content}: {error}");
    }
}

#[test]
fn profiles_of_a_cluster_hold_for_its_hosts() {
    let text = "<platform version='4.1'><cluster id='c' prefix='n' radical='0-3' speed='1Gf' bw='1MBps' lat='1ms' \
                state_file='f'/></platform>";
    let platform = Platform::parse(text, "c.xml", &mut |_| Ok("1 0\n".to_owned())).unwrap();
    assert_eq!(platform.profiles().len(), 4);
    let error = platform.host_error(HostId(2), "is odd").to_string();
    assert_eq!(error, "c.xml:1:25: is odd");
}

#[test]
fn a_fat_tree_is_bounded_and_joined_in_order() {
    let tree = |parameters: &str| {
        let text = format!(
            "<platform version='4.1'><cluster id='c' prefix='n' radical='0-3' speed='1Gf' bw='1MBps' lat='1ms' \
             topology='FAT_TREE' topo_parameters='{parameters}'/></platform>"
        );
        Platform::parse(&text, "f.xml", &mut |_| Err(String::new()))
    };
    let error = tree("2;2,2;2000,2000;1,1").unwrap_err().to_string();
    assert!(error.contains("make a tree of 4004000 switches and 8008000 cables; at most 1000000 of each"), "{error}");
    assert!(tree("2;2,2;1,4000000000;1,4000000000").is_err());
    // A thousand switches on top, each joined to both below.
    let platform = tree("2;2,2;2,500;1,1").unwrap();
    let route = platform.route(HostId(0), HostId(3)).unwrap();
    assert_eq!(route.links.len(), 4);
}

#[test]
fn ranges_of_a_name_are_combined_and_profiles_take_units() {
    let text = "[[cluster]]\nname = 'c'\nhosts = 'n-[0-1]-{08..10}.x'\nspeed = 1e9\nbandwidth = 1e6\nlatency = 0\n\
                [[profile]]\nlink = 'c_link_0-08'\nkind = 'bandwidth'\nevents = [['1ms', '1Mbps'], [2, 5]]\n\
                [[profile]]\nlink = 'c_link_1-10'\nkind = 'latency'\nevents = [[1, '2ms']]\n";
    let platform = toml(text).unwrap();
    let names: Vec<&str> = platform.hosts().iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["n-0-08.x", "n-0-09.x", "n-0-10.x", "n-1-08.x", "n-1-09.x", "n-1-10.x"]);
    assert_eq!(platform.profiles()[0].events, [(0.001, 125_000.0), (2.0, 5.0)]);
    assert_eq!(platform.profiles()[2].events, [(1.0, 0.002)]);
    let many = text.replace("[0-1]", "[0-9999]").replace("{08..10}", "[0-9999]");
    assert!(toml(&many).unwrap_err().to_string().contains("names more than 16000000 hosts"));
    let host = "[[host]]\nname = 'a'\nspeed = 1\n[[profile]]\nhost = 'a'\nkind = 'speed'\nevents = [[0, 1]]\n";
    let error = toml(&format!("{host}loop_after = 0\n")).unwrap_err().to_string();
    assert!(error.contains(":8:14: the profile restarts every 0 s"), "{error}");
}

#[test]
fn a_long_line_of_hosts_is_read_in_time_that_grows_with_its_length() {
    let count = 30_000;
    let hosts: Vec<String> = (0..count).map(|i| format!("{{ name = \"é{i}\", speed = \"1Gf\" }}")).collect();
    let names: Vec<String> = (0..count).map(|i| format!("\"é{i}\"")).collect();
    let mut text = format!("host = [{}]\n", hosts.join(", "));
    text += &format!("star = [{{ hosts = [{}], bandwidth = 1e9 }}]\n", names.join(", "));
    assert_eq!(Platform::parse(&text, "long.toml", &mut |_| unreachable!()).unwrap().hosts().len(), count);
    let wrong = format!("host = [{}, {{ nome = 1 }}]", hosts.join(", "));
    let column = wrong[..wrong.find("nome").unwrap()].chars().count() + 1;
    let error = Platform::parse(&wrong, "long.toml", &mut |_| unreachable!()).unwrap_err();
    assert_eq!((error.line as usize, error.column as usize), (1, column), "{error}");
}

#[test]
fn links_can_lose_their_latency_for_good() {
    let text = "[[link]]\nname = 'near'\nbandwidth = 1\nlatency = '1ms'\n[[link]]\nname = 'far'\nbandwidth = 1\nlatency = '9ms'\n\
                [[host]]\nname = 'a'\nspeed = 1\n[[host]]\nname = 'b'\nspeed = 1\n\
                [[route]]\nfrom = 'a'\nto = 'b'\nlinks = ['near', 'far']\n\
                [[profile]]\nlink = 'far'\nkind = 'latency'\nevents = [[1, '2ms']]\n\
                [[profile]]\nlink = 'far'\nkind = 'bandwidth'\nevents = [[1, 2]]\n\
                [[profile]]\nlink = 'near'\nkind = 'latency'\nevents = [[1, '2ms']]\n";
    let platform = toml(text).unwrap();
    let far = platform.link("far").unwrap();
    let platform = platform.without_latency(&[far]);
    assert_eq!(platform.route(HostId(0), HostId(1)).unwrap().latency_s, 0.001);
    assert_eq!(platform.profiles().len(), 2);
}

#[test]
fn data_between_two_firewalls_pass_through_a_relay() {
    let text = "[[host]]\nname = 'gate'\nspeed = 1\n[[host]]\nname = 'open'\nspeed = 1\n\
                [[cluster]]\nname = 'a'\nhosts = 'a-[0-1]'\nspeed = 1\nbandwidth = 1\nlatency = 1\n\
                [[cluster]]\nname = 'b'\nhosts = 'b-[0-1]'\nspeed = 1\nbandwidth = 1\nlatency = 1\n";
    let links = ["a gate", "b gate", "a open", "open gate", "a b"].map(|ends| ends.split_once(' ').unwrap());
    let link = |(from, to)| {
        format!(
            "[[link]]\nname = '{from}-{to}'\nbandwidth = 1\nlatency = 10\n\
             [[route]]\nfrom = '{from}'\nto = '{to}'\nlinks = ['{from}-{to}']\n"
        )
    };
    let text = text.to_owned() + &links.map(link).concat();
    let walls = "[[firewall]]\nhosts = 'a-[0-1]'\nrelay = 'gate'\n[[firewall]]\nhosts = 'b'\nrelay = 'gate'\n";
    let platform = toml(&format!("{text}{walls}")).unwrap();
    let host = |name: &str| platform.host(name).unwrap();
    let names = |from, to| {
        let route = platform.route(host(from), host(to)).unwrap();
        let names = route.links.iter().map(|link| platform.links()[link.0 as usize].name.as_str());
        (names.collect::<Vec<_>>().join(" "), route.latency_s)
    };
    assert_eq!(names("a-0", "b-1"), ("a_link_0_UP a-gate b-gate b_link_1_DOWN".to_owned(), 22.0));
    assert_eq!(platform.relay(host("a-0"), host("b-1")), Some(host("gate")));
    // Hosts of one firewall, and hosts of which one accepts connections.
    assert_eq!(names("a-0", "a-1"), ("a_link_0_UP a_link_1_DOWN".to_owned(), 2.0));
    assert_eq!(names("a-0", "open"), ("a_link_0_UP a-open".to_owned(), 11.0));
    assert_eq!((platform.relay(host("gate"), host("b-0")), platform.firewalls().count()), (None, 2));

    let error = |walls: &str| toml(&format!("{text}{walls}")).unwrap_err().to_string();
    let twice = "[[firewall]]\nhosts = ['a', 'a-0']\nrelay = 'gate'\n[[firewall]]\nhosts = 'a-1'\nrelay = 'gate'\n";
    assert!(error(twice).contains("host 'a-1' is behind two firewalls"), "{}", error(twice));
    let hidden = error("[[firewall]]\nhosts = 'a'\nrelay = 'a-0'\n");
    assert!(hidden.contains("the relay 'a-0' is behind a firewall, so no host can connect to it"), "{hidden}");
    let unknown = error("[[firewall]]\nhosts = 'c'\nrelay = 'gate'\n");
    assert!(unknown.contains("unknown host, cluster or star 'c'"), "{unknown}");
    let none = error("[[firewall]]\nhosts = []\nrelay = 'gate'\n");
    assert!(none.contains("a firewall has at least one host"), "{none}");
}

#[test]
fn parts_of_other_programs_are_ignored_and_counted() {
    let text = "<platform version='4.1'><zone id='z' routing='Full'><prop id='x' value='y'/>\
                <host id='m' speed='1Gf'><prop id='role' value='master'/><prop id='memory' value='250'/>\
                <disk id='d' read_bw='1MBps' write_bw='1MBps'/></host>\
                <host id='n' speed='1Gf'><prop id='role' value='compute_node'/><prop id='watts' value='95'/></host>\
                <link id='l' bandwidth='1MBps'><prop id='watts' value='5'/></link>\
                <route src='m' dst='n'><link_ctn id='l'/></route></zone></platform>";
    let load = &mut |_: &str| Err("no files".to_string());
    let platform = Platform::parse(text, "p.xml", load).unwrap();
    assert_eq!(platform.hosts()[0].properties, BTreeMap::new());
    assert_eq!(platform.hosts()[1].properties, BTreeMap::from([("watts".to_owned(), "95".to_owned())]));
    let ignored: Vec<(&str, usize)> = platform.ignored().iter().map(|(what, count)| (what.as_str(), *count)).collect();
    let expected = [
        ("element 'disk'", 1),
        ("property 'memory' of a host", 1),
        ("property 'role' of a host", 2),
        ("property of a link", 1),
        ("property of a zone", 1),
    ];
    assert_eq!(ignored, expected);
    let prefixed = text.replace("<prop id='watts' value='95'/>", "<prop id='gridloom:role' value='server'/>");
    let platform = Platform::parse(&prefixed, "p.xml", load).unwrap();
    assert_eq!(platform.hosts()[1].properties, BTreeMap::from([("role".to_owned(), "server".to_owned())]));
}
