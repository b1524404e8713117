package compare

import "github.com/lockstrategies/locks/conformance"

// A group is a row of the guarantee table: what a user asks of a lock, and the
// properties of the suite that answer it.
type group struct {
	title      string
	properties []string

	// offered is set where a lock may do without, and the suite then checks that it
	// does: the cell is Absent, and not Kept. nil: demanded of all.
	offered func(conformance.Subject) bool
}

// titleWidth bounds titles, so that three strategies fit on 80 columns.
const titleWidth = 33

// groups are the rows, in teaching order. Every property of the suite is in exactly
// one, which a test holds.
var groups = []group{
	{title: "one holder, if nothing goes wrong", properties: []string{"Exclusive", "Contention", "NoLostUpdate"}},
	{title: "… among processes too", properties: []string{"Processes"}},
	{title: "any name, each its own lock", properties: []string{"NamesIndependent", "OddNames"}},
	{title: "a try answers at once", properties: []string{"TryDoesNotWait", "FailedTryChangesNothing", "CancelledBefore", "TimeOut", "TimeOutInLine"}},
	{title: "a release frees the lock", properties: []string{"ReleaseFrees", "ReleaseOnce", "ReleaseAnywhere", "ReleaseDetached"}},

	{title: "a dead holder's lock becomes free", properties: []string{"Expires", "NoDeadlock", "HolderKilled"}},
	{title: "none gets in before the deadline", properties: []string{"DeadlineIsSafe", "DeadlineFromRequest", "LateGrant", "OneTakesOver", "ExtendRestarts"}},
	{title: "one wins a race after an expiry", properties: []string{"TakeOverRace", "NoGhost"}},
	{title: "… and the loser changes nothing", properties: []string{"LoserChangesNothing"}},
	{title: "contenders' clocks may disagree", properties: []string{"ClockAhead", "ClockBehind"}},

	{title: "a late release is harmless", properties: []string{"TokensUnique", "ReleaseOnlyOwn", "ReleaseAfterLoss"}},
	{title: "… even if the lock expires midway", properties: []string{"ReleaseAtomic"}},
	{title: "a late extension is refused", properties: []string{"ExtendOnlyOwn", "ExtendNeverRecreates", "LateExtension"}},
	{title: "… also if the lock expires midway", properties: []string{"ExtendAtomic"}},

	{title: "works while a majority answers", properties: []string{"OneRound", "MinorityDown", "HungNode", "MinorityForgets", "WokenByMajority"}},
	{title: "nothing without a majority", properties: []string{"QuorumNeeded", "MajorityDown", "MajorityForgets", "SlowQuorum"}},
	{title: "every vote is taken back", properties: []string{"FailedAttemptLeavesNothing", "LateGrantUndone", "ReleaseEverywhere", "EvenSplit"}},

	{title: "waiters get it, freed or expired", properties: []string{"WokenByRelease", "WokenAtExpiry", "WaiterWithoutAnswer", "ReplicaIsLeft"}},
	{title: "a wait ends when told to", properties: []string{"WaitLimit", "DeadlinePassed", "CancelledWaiting", "CancelRacesGrant", "Persist", "CloseEndsWaits"}},
	{title: "waiters are woken, not polling", properties: []string{"WokenByNotification", "NoMissedRelease", "BrokenWatch", "WaitersAreCheap", "ForgedGrant", "ForgedDelay"}},
	{title: "served in turn within one process", properties: []string{"FirstComeFirstServed", "HandedOn", "Burst"}},
	{title: "… and among processes", properties: []string{"FairAcrossProcesses", "NoBarging", "WhoQueues", "AskingAgain", "PassKeepsPlaces", "LongQueue", "DeadSuccessor", "UnsubscribedWaiter"}},

	{title: "kept alive while it is held", properties: []string{"KeptAlive", "RenewalStops", "RenewsAfterLoss", "MaxHold", "Do"}},
	{title: "a holder learns of its loss", properties: []string{"LossNoticed", "LossByDeadline", "LossWithoutNetwork", "LossAfterClose", "ReleaseIsNoLoss", "ContextEnds"}},
	{title: "can be passed to another process", properties: []string{"Detach", "Adopt", "AdoptOnlyHeld", "AdoptOnce", "AdoptionWakes"}},
	{title: "operators can see and end a hold", properties: []string{"Inspect", "ForceRelease"}},

	{title: "every hold has a greater fence", properties: []string{"FenceRises", "FenceKept", "FenceOrders"},
		offered: func(s conformance.Subject) bool { return s.Fenced }},
	{title: "re-entrant for the same owner", properties: []string{"Reentry", "ReentryByOwner", "ReentryUnnamed", "ReentryByContext", "ReentryBesideWaiters", "ReentryOvertakesNobody", "ReentryFence", "ReentryAfterLoss"},
		offered: func(s conformance.Subject) bool { return s.Reentrant }},
	{title: "… held until the last release", properties: []string{"ReentryLastRelease", "ReentryReleaseOnce", "ReentryCount", "ReentryWakes", "ReentryForce"}},
	{title: "… each hold on its own terms", properties: []string{"ReentryRenewal", "ReentryOwnTTL", "ReentryDeadHold", "ReentryAdopt"}},

	{title: "n may hold it at the same time", properties: []string{"PermitsBound", "PermitsUnderContention", "PermitsApart", "PermitsOnlyOwn", "PermitFences", "DeadPermits", "PermitsLeaveNothing"}},
	{title: "… some with several permits", properties: []string{"SeveralPermits", "TooManyPermits", "PermitsInOrder", "ManyPermitsNotOvertaken", "ManyPermitsGiveUp"}},
	{title: "… their number can be changed", properties: []string{"PermitsRaised", "PermitsLowered", "TooManyNow", "PermitsForAll"}},
	{title: "many may read, or one write", properties: []string{"ReadersTogether", "WriterAlone", "WithinItself", "ReadersAndWriters", "ReadersOnlyOwn", "DeadReader", "WriterFences", "ReadersLeaveNothing"}},
	{title: "… in turns: neither side starves", properties: []string{"WriterNotStarved", "ReadersNotStarved", "WriterGivesUp", "Downgrade"}},

	{title: "nonsense is refused, clearly", properties: []string{"BadNames", "BadOptions", "BadMaxHold", "WrongType"}},
	{title: "cleans up behind itself", properties: []string{"LeavesNothing", "ExpiryLeavesNothing", "LateRequestUndone", "NoGoroutines", "ClosedRefuses"}},
}
