package mutants

// SetNXGetSet and SetNXGetSetWatch judge package setnxgetset, with its two ways to
// take over.
var (
	SetNXGetSet      = Judge{Package: "./setnxgetset", Test: "TestConformance/setnxgetset", Redis: true}
	SetNXGetSetWatch = Judge{Package: "./setnxgetset", Test: "TestConformance/setnxgetset-watch", Redis: true}
)

// setNXGetSet are faults of package setnxgetset.
func setNXGetSet() []Mutant {
	const algorithm, stamp, more = "setnxgetset/setnxgetset.go", "setnxgetset/stamp.go", "setnxgetset/capabilities.go"
	return []Mutant{
		{
			Name: "setnxgetset does not look at what GETSET returned", File: algorithm,
			Old: "case old.gone || old.lapsed():", New: "default:",
			Judge: SetNXGetSet, Killed: []string{"TakeOverRace"},
		},
		{
			Name: "setnxgetset takes GETSET's nil for held", File: algorithm,
			Old: "case old.gone || old.lapsed():", New: "case !old.gone && old.lapsed():",
			Judge: SetNXGetSet, Killed: []string{"NoGhost"},
		},
		{
			Name: "setnxgetset takes over without looking whether it has lapsed", File: algorithm,
			Old: "case !seen.gone && !seen.lapsed():\n\t\treturn driver.Grant{}, seen.held(c)", New: "case false:",
			Judge: SetNXGetSet, Killed: []string{"FailedTryChangesNothing"},
		},
		{
			Name: "setnxgetset compares stamps the wrong way", File: stamp,
			Old: "if s.until > now {", New: "if s.until < now {",
			Judge: SetNXGetSet, Killed: []string{"Exclusive"},
		},
		{
			Name: "setnxgetset never sees a stamp pass", File: stamp,
			Old: "{ return s.left <= 0 }", New: "{ return s.left < 0 }",
			Judge: SetNXGetSet, Killed: []string{"TakeOverRace"},
		},
		{
			Name: "setnxgetset stamps locks for less than their TTL", File: stamp,
			Old: "p.now().Add(ttl).UnixMilli()", New: "p.now().Add(ttl / 4).UnixMilli()",
			Judge: SetNXGetSet, Killed: []string{"DeadlineIsSafe"},
		},
		{
			Name: "setnxgetset takes what is no stamp for a lapsed one", File: stamp,
			Old: "\t\treturn stamp{}, p.refused(\"%s holds no timestamp lock: %.100q\", c.Key, value)", New: "\t\treturn stamp{token: token}, nil",
			Judge: SetNXGetSet, Killed: []string{"WrongType"},
		},
		{
			Name: "setnxgetset does not compare tokens", File: stamp,
			Old: "case s.token != token:", New: "case false:",
			Judge: SetNXGetSet, Killed: []string{"ReleaseOnlyOwn", "ExtendOnlyOwn", "AdoptOnlyHeld", "ForceRelease"},
		},
		{
			Name: "setnxgetset extends whatever is there", File: algorithm,
			Old: "if err := seen.ownedBy(c, c.Token); err != nil {\n\t\t\treturn command{}, err\n\t\t}\n\t\tmine", New: "mine",
			Judge: SetNXGetSetWatch, Killed: []string{"ExtendOnlyOwn"},
		},
		{
			Name: "setnxgetset adopts without a new token", File: more,
			Old: "p.value(c.Token, c.TTL, 0)", New: "p.value(from, c.TTL, 0)",
			Judge: SetNXGetSet, Killed: []string{"AdoptOnce"},
		},
		{
			Name: "setnxgetset does not watch", File: algorithm,
			Old: `p.expect(conn, "OK", "WATCH", c.Key)`, New: `p.expect(conn, "PONG", "PING")`,
			Judge: SetNXGetSetWatch, Killed: []string{"TakeOverRace", "LoserChangesNothing", "ReleaseAtomic", "ExtendAtomic"},
		},
		{
			Name: "setnxgetset takes an aborted EXEC for done", File: algorithm,
			Old: "continue // somebody was quicker", New: "return nil",
			Judge: SetNXGetSetWatch, Killed: []string{"TakeOverRace", "ExtendAtomic"},
		},
		{
			Name: "setnxgetset watches what it has read already", File: algorithm,
			Old:   "for {\n\t\t\tif err := p.expect(conn, \"OK\", \"WATCH\", c.Key); err != nil {\n\t\t\t\treturn err\n\t\t\t}\n\t\t\treply, err := conn.Do(\"GET\", c.Key)",
			New:   "for {\n\t\t\treply, err := conn.Do(\"GET\", c.Key)\n\t\t\tif err := p.expect(conn, \"OK\", \"WATCH\", c.Key); err != nil {\n\t\t\t\treturn err\n\t\t\t}",
			Judge: SetNXGetSetWatch, Killed: []string{"TakeOverRace", "ReleaseAtomic", "ExtendAtomic"},
		},
	}
}
