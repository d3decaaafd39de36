use proptest::prelude::*;

use super::*;

/// Headers as they are sent.
type Given<'a> = &'a [(&'a str, &'a [u8])];

fn access(bound: &str, token: Option<&str>) -> Access {
    let extra = ["Pi.Lan".to_owned()];
    Access::new(bound.parse().unwrap(), &extra, token).unwrap()
}

fn headers(given: &[(&str, &[u8])]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in given {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_bytes(value).unwrap());
    }
    map
}

#[test]
fn only_our_own_names_are_hosts() {
    let table: [(&str, Result<(), Denied>); 22] = [
        ("localhost", Ok(())),
        ("LOCALHOST:8765", Ok(())),
        ("localhost.", Ok(())),
        ("127.0.0.1", Ok(())),
        ("127.0.0.1:8765", Ok(())),
        ("127.0.0.1:1", Ok(())),
        ("[::1]", Ok(())),
        ("[::1]:8765", Ok(())),
        ("pi.lan:80", Ok(())),
        ("evil.example", Err(Denied::HostForeign)),
        ("evil.example:8765", Err(Denied::HostForeign)),
        ("localhost.evil.example", Err(Denied::HostForeign)),
        ("127.0.0.1.evil.example", Err(Denied::HostForeign)),
        ("192.168.1.9", Err(Denied::HostForeign)),
        ("0.0.0.0", Err(Denied::HostForeign)),
        ("user@localhost", Err(Denied::HostForeign)),
        ("", Err(Denied::HostMalformed)),
        (":8765", Err(Denied::HostMalformed)),
        ("localhost:x", Err(Denied::HostMalformed)),
        ("localhost:99999", Err(Denied::HostMalformed)),
        ("[::1", Err(Denied::HostMalformed)),
        ("[::1]x", Err(Denied::HostMalformed)),
    ];
    let access = access("127.0.0.1:8765", None);
    for (host, expected) in table {
        let headers = headers(&[("host", host.as_bytes())]);
        assert_eq!(access.check(&headers, None, Wants::Own), expected, "{host:?}");
    }
}

#[test]
fn no_host_two_hosts_and_bytes_that_are_not_text_are_malformed() {
    let access = access("127.0.0.1:8765", None);
    let check = |given: &[(&str, &[u8])]| access.check(&headers(given), None, Wants::Open);
    assert_eq!(check(&[]), Err(Denied::HostMalformed));
    let two: [(&str, &[u8]); 2] = [("host", b"localhost"), ("host", b"localhost")];
    assert_eq!(check(&two), Err(Denied::HostMalformed));
    assert_eq!(check(&[("host", b"localh\xf6st")]), Err(Denied::HostMalformed));
}

#[test]
fn an_absolute_target_counts_instead_of_the_header() {
    let access = access("127.0.0.1:8765", None);
    let headers = headers(&[("host", b"localhost")]);
    let foreign = Authority::from_static("evil.example");
    assert_eq!(access.check(&headers, Some(&foreign), Wants::Open), Err(Denied::HostForeign));
    let own = Authority::from_static("localhost:8765");
    assert_eq!(access.check(&headers, Some(&own), Wants::Open), Ok(()));
}

#[test]
fn a_page_of_another_origin_is_refused() {
    let table: [(Given<'_>, Result<(), Denied>); 12] = [
        (&[], Ok(())),
        (&[("origin", b"http://localhost:8765")], Ok(())),
        (&[("origin", b"HTTPS://LOCALHOST:8765")], Ok(())),
        (&[("sec-fetch-site", b"same-origin")], Ok(())),
        (&[("sec-fetch-site", b"none")], Ok(())),
        (&[("sec-fetch-site", b"cross-site")], Err(Denied::OriginForeign)),
        (&[("origin", b"null")], Err(Denied::OriginForeign)),
        (&[("origin", b"")], Err(Denied::OriginForeign)),
        (&[("origin", b"http://localhost:3000")], Err(Denied::OriginForeign)),
        (&[("origin", b"http://127.0.0.1:8765")], Err(Denied::OriginForeign)),
        (&[("origin", b"http://localhost:8765.evil.example")], Err(Denied::OriginForeign)),
        (
            &[("origin", b"http://localhost:8765"), ("origin", b"http://evil.example")],
            Err(Denied::OriginForeign),
        ),
    ];
    let access = access("127.0.0.1:8765", None);
    for (given, expected) in table {
        let mut all: Vec<(&str, &[u8])> = vec![("host", b"localhost:8765")];
        all.extend(given);
        assert_eq!(access.check(&headers(&all), None, Wants::Own), expected, "{given:?}");
    }
}

#[test]
fn the_token_fits_exactly_or_not_at_all() {
    let denied = Err(Denied::Unauthorised);
    let table: [(&str, &[u8], Result<(), Denied>); 11] = [
        ("x-ocf-token", b"s3cret", Ok(())),
        ("X-OCF-Token", b" s3cret ", Ok(())),
        ("authorization", b"Bearer s3cret", Ok(())),
        ("authorization", b"bearer s3cret", Ok(())),
        ("authorization", b"Basic s3cret", denied),
        ("authorization", b"s3cret", denied),
        ("x-ocf-token", b"s3cre", denied),
        ("x-ocf-token", b"s3cret!", denied),
        ("x-ocf-token", b"S3cret", denied),
        ("x-ocf-token", b"", denied),
        ("x-ocf-token", b"s3cr\xe9t", denied),
    ];
    let access = access("0.0.0.0:8765", Some("s3cret"));
    for (name, value, expected) in table {
        let given = headers(&[("host", b"localhost"), (name, value)]);
        assert_eq!(access.check(&given, None, Wants::Own), expected, "{name}: {value:?}");
        assert_eq!(access.check(&given, None, Wants::Open), Ok(()));
    }
    assert_eq!(access.check(&headers(&[("host", b"localhost")]), None, Wants::Own), denied);
    assert!(!format!("{access:?}").contains("s3cret"));
}

#[test]
fn bound_to_all_addresses_any_address_is_ours_but_no_name() {
    let access = access("0.0.0.0:8765", Some("t"));
    let check =
        |host: &str| access.check(&headers(&[("host", host.as_bytes())]), None, Wants::Open);
    assert_eq!(check("192.168.1.9:8765"), Ok(()));
    assert_eq!(check("[fe80::1]"), Ok(()));
    assert_eq!(check("evil.example"), Err(Denied::HostForeign));
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
    let open = |bound: &str, token| Access::new(bound.parse().unwrap(), &[], token).err();
    assert_eq!(open("127.0.0.1:1", None), None);
    assert_eq!(open("[::1]:1", None), None);
    for bound in ["0.0.0.0:1", "[::]:1", "192.168.1.9:1"] {
        assert_eq!(open(bound, None), Some(AccessError::OpenToOthers(bound.parse().unwrap())));
        assert_eq!(open(bound, Some("t")), None);
    }
    for token in ["", "two words", "umläut", "nul\0"] {
        assert_eq!(open("127.0.0.1:1", Some(token)), Some(AccessError::BadToken), "{token:?}");
    }
}

proptest! {
    #[test]
    fn bytes_are_the_same_only_if_they_are(
        a in proptest::collection::vec(0u8..3, 0..6),
        b in proptest::collection::vec(0u8..3, 0..6),
    ) {
        prop_assert_eq!(same_bytes(&a, &b), a == b);
    }

    #[test]
    fn no_host_of_an_attacker_gets_in(host in "[a-z0-9.:@\\[\\]]{1,24}") {
        let access = access("127.0.0.1:8765", None);
        let let_in = access.check(&headers(&[("host", host.as_bytes())]), None, Wants::Open).is_ok();
        let name = host.split_once("]").map_or_else(
            || host.split(':').next().unwrap_or_default().to_owned(),
            |(v6, _)| format!("{v6}]"),
        );
        let ours = ["localhost", "127.0.0.1", "[::1]", "pi.lan"];
        let name = name.strip_suffix('.').unwrap_or(&name);
        prop_assert!(!let_in || ours.contains(&name), "{}", host);
    }
}

#[test]
fn a_link_on_another_site_leads_to_the_page_and_nowhere_else() {
    let followed: [(&str, &[u8]); 4] = [
        ("host", b"localhost:8765"),
        ("sec-fetch-site", b"cross-site"),
        ("sec-fetch-mode", b"navigate"),
        ("sec-fetch-dest", b"document"),
    ];
    let access = access("127.0.0.1:8765", Some("s3cret"));
    let check = |given: &[(&str, &[u8])], wants| access.check(&headers(given), None, wants);
    assert_eq!(check(&followed, Wants::Page), Ok(()));
    for wants in [Wants::Open, Wants::Own] {
        assert_eq!(check(&followed, wants), Err(Denied::OriginForeign), "{wants:?}");
    }
    let other: [(usize, (&str, &[u8])); 5] = [
        (0, ("host", b"evil.example")),
        (2, ("sec-fetch-mode", b"no-cors")),
        (2, ("sec-fetch-mode", b"cors")),
        (3, ("sec-fetch-dest", b"iframe")),
        (3, ("sec-fetch-dest", b"empty")),
    ];
    for (at, header) in other {
        let mut given = followed;
        given[at] = header;
        assert!(check(&given, Wants::Page).is_err(), "{header:?}");
    }
    let posted: [(&str, &[u8]); 1] = [("origin", b"https://evil.example")];
    assert!(check(&[&followed[..], &posted].concat(), Wants::Page).is_err());
}
