// Faults of locks on several servers: see TestMutants.
package conformance

// quorumMutants are quorum locks in memory, each with one mistake.
var quorumMutants = []mutant{
	quorumMutant("one server is a quorum", 3, mistakes{quorum: 1}, "QuorumNeeded", "MajorityDown"),
	quorumMutant("half of the servers are a quorum", 4, mistakes{quorum: 2}, "QuorumNeeded"),
	quorumMutant("asks one server after the other", 3, mistakes{oneByOne: true}, "OneRound", "HungNode"),
	quorumMutant("asks each server twice", 3, mistakes{looksFirst: true}, "OneRound"),
	quorumMutant("waits for every server", 5, mistakes{waitsForAll: true}, "HungNode"),
	quorumMutant("does not look how long the quorum took", 3, mistakes{noValidity: true}, "SlowQuorum"),
	quorumMutant("counts from the last reply", 3, mistakes{startsLate: true}, "SlowQuorum"),
	quorumMutant("does not draw lots when votes were split", 4, mistakes{inStep: true}, "EvenSplit"),
	quorumMutant("lets a minority say that a lock is held", 3, mistakes{heldWhenDown: true}, "MajorityDown"),
	quorumMutant("keeps the votes of a failed attempt", 3, mistakes{keepsVotes: true}, "FailedAttemptLeavesNothing", "SlowQuorum", "EvenSplit"),
	quorumMutant("releases on one server", 3, mistakes{releasesFirst: true}, "ReleaseEverywhere"),
	quorumMutant("releases only where the vote was confirmed", 3, mistakes{releasesGranted: true}, "ReleaseEverywhere", "LateGrantUndone"),
	quorumMutant("does not come back to servers that did not answer", 5, mistakes{releasesOnce: true}, "ReleaseEverywhere", "LateGrantUndone"),
	quorumMutant("believes that what is not there will not come", 3, mistakes{trustsNotThere: true}, "LateGrantUndone"),
	quorumMutant("one server that extends is enough", 3, mistakes{extendsAny: true}, "MajorityForgets"),
	quorumMutant("every server has to extend", 5, mistakes{extendsAll: true}, "MinorityDown", "MinorityForgets", "HungNode"),
	quorumMutant("takes the error of one server for a loss", 5, mistakes{loses: true}, "MinorityDown"),
	quorumMutant("lets a minority say that a lock is lost", 5, mistakes{believesLoss: true}, "MinorityForgets"),
	quorumMutant("needs every server to announce releases", 3, mistakes{watchesAll: true}, "WokenByMajority"),
	quorumMutant("listens to one server", 3, mistakes{watchesFirst: true}, "WokenByMajority"),
}

// quorumMutant is a quorum lock on n servers, judged where time is fake: some faults
// show only while all keep step.
func quorumMutant(name string, n int, m mistakes, killed ...string) mutant {
	return mutant{name, killed, func() Subject { return quorumSubject(name, n, 0, m) }}
}
