/* The rules by which fences of redlock rise, as a model for the checker Spin; ../redlock.md proves them. Nothing of the lock is
 * in it but the key that each node has: it may be free again at any moment.
 *
 * Phase 1  Ask all: if the key is free, set it to my token and tell c, the counter. Go on when a
 *          majority Q has granted, with F = 1 + the greatest c it told.
 * Phase 2  Ask Q: if the key still holds my token, c = max(c, F), and confirm.
 *          When a majority W of Q has confirmed, the lock is held with fence F.
 *
 * A node that lost its memory is blank: it says so, and counts neither in Q nor in W until it is healed. Those who asked
 * while it was blank heal it after a success: if it still has that memory, c = max(c, F).
 *
 * A request and its reply are one step: a reply that comes too late to count is as good as a lost one, and one that comes
 * in time says what was true when the node spoke. A request may be executed at any later moment, or never.
 */
#ifndef PHASES
#define PHASES 2   /* 1: phase 1 increments and tells, and that is all */
#endif
#ifndef COMPARES
#define COMPARES 1 /* 0: phase 2 does not look at the key */
#endif
#ifndef LOSSES
#define LOSSES 0   /* how often a node loses its memory */
#endif
#ifndef HEALS
#define HEALS 2    /* 1: any write-back heals, and what it healed counts in W; 0: a blank node counts like any other */
#endif
#ifndef EXPIRES
#define EXPIRES 0  /* 1: a counter expires when the node's clock has reached it, and a vote tells the clock, too; 2: sooner */
#endif
#ifndef MORE
#define MORE 0     /* a holder takes so many more numbers than one */
#endif
#ifndef NOTES
#define NOTES MORE /* 0: phase 2 notes the first of them */
#endif

#define NODES 3
#define A 0
#define B 1
#define C 2
mtype = { Bob, Alice };  /* Spin numbers them from the end: Alice is 1 */
mtype key[NODES];        /* the token that holds it; 0: free */
byte counter[NODES];
byte memory[NODES];      /* which memory this is; another after each loss */
bool blank[NODES];       /* it has lost its counter, and is not healed */
byte clock[NODES];
byte until[NODES];       /* the clock at which the counter expires */
byte losses;

byte held[3];            /* the fence of each holder */
byte finished;           /* the greatest number of those that are finished */

#define max(x, y) (x > y -> x : y)
#define node(n) 'A' + n
#define in(set, n) (set & 1 << n)
#define majority(set) (set == 3 || set == 5 || set == 6 || set == 7)
#define must(property, else_say) if :: property :: else -> printf(else_say); assert(false) fi

inline notes(n) {
	counter[n] = max(counter[n], fence + NOTES);
	until[n] = counter[n]
}

/* From here on the client may tell others of its fence. */
inline finish() {
	phase = 3;
	printf("%e holds the lock, with fence %d\n", me, fence);
	must(fence > floor, "A hold that began later has no greater fence\n");
	must(!held[3 - me] || fence > held[3 - me] + MORE || held[3 - me] > fence + MORE, "Two holds have one fence\n");
	held[me] = fence;
	finished = max(finished, fence + MORE);
	floor = 0; q = 0; w = 0; unknown = 0
}

inline grant(n, heard) {
	d_step {
		in(grants, n) && !key[n];
		if
		:: !phase -> phase = 1; floor = finished /* to begin just before its first grant is the hardest: most is finished */
		:: else
		fi;
		grants = grants & ~(1 << n);
		key[n] = me;
		if
		:: PHASES == 1 -> counter[n]++
		:: else
		fi;
		if
		:: heard && phase == 1 ->
			q = q | 1 << n;
			fence = max(fence, counter[n]);
			fence = max(fence, clock[n]);
			told[n] = memory[n];
			unknown = (blank[n] && HEALS -> unknown | 1 << n : unknown);
			printf("%c votes for %e; its counter is %d\n", node(n), me, counter[n])
		:: else -> printf("%c votes for %e, unheard\n", node(n), me)
		fi
	}
}

inline write() {
	d_step {
		phase == 1 && majority((q & ~unknown));
		if
		:: PHASES == 1 -> finish()
		:: else ->
			phase = 2;
			fence++;
			writes = (HEALS == 1 -> q : q & ~unknown);
			q = 0;
			printf("%e has a quorum, and asks it to note %d\n", me, fence)
		fi
	}
}

inline writeback(n) {
	d_step {
		in(writes, n);
		writes = writes & ~(1 << n);
		if
		:: key[n] == me || !COMPARES ->
			notes(n);
			blank[n] = blank[n] && HEALS == 2 && !(EXPIRES && memory[n] == told[n]); /* it expired since it granted this, when it knew */
			w = (phase == 2 -> w | 1 << n : w);
			printf("%c notes %e's fence %d\n", node(n), me, fence)
		:: else
		fi;
		if
		:: phase == 2 && majority(w) ->
			heals = (HEALS == 2 -> unknown : 0);
			finish()
		:: else
		fi
	}
}

inline heal(n) {
	d_step {
		in(heals, n);
		heals = heals & ~(1 << n);
		if
		:: memory[n] == told[n] -> notes(n); blank[n] = 0; printf("%c is healed by %e\n", node(n), me)
		:: else
		fi
	}
}

inline join(n) {
	d_step {
		phase == 3 && !key[n];
		key[n] = me;
		printf("%c joins the nodes that have %e's lock\n", node(n), me)
	}
}

#define each(step) :: step(A) :: step(B) :: step(C)

proctype attempt(mtype me) {
	byte phase, grants, q, unknown, writes, w, heals, fence, floor, told[NODES]; /* sets of nodes; unknown: those of q that were blank */

	grants = 7;
	do
	:: grant(A, true) :: grant(B, true) :: grant(C, true)
	:: grant(A, false) :: grant(B, false) :: grant(C, false)
	:: write()
	each(writeback)
	each(heal)
	each(join)
	od
}

inline expire(n) {
	d_step { key[n]; key[n] = 0; printf("%c lets its key go\n", node(n)) }
}

/* If one node more forgot, that would only end all progress. */
#define mayForget(n) (blank[n] || !(blank[A] || blank[B] || blank[C]))

inline forget(n) {
	d_step {
		losses < LOSSES && mayForget(n);
		losses++;
		memory[n] = losses;
		key[n] = 0; counter[n] = 0; until[n] = 0; blank[n] = 1;
		printf("%c loses its memory\n", node(n))
	}
}

inline lapse(n) {
	d_step {
		EXPIRES && counter[n] && (!memory[n] || mayForget(n));
		clock[n] = (EXPIRES == 1 -> max(clock[n], until[n]) : clock[n]); /* no sooner: the node reports a lesser time for longer */
		counter[n] = 0; until[n] = 0;
		blank[n] = blank[n] || memory[n]; /* it cannot tell what has expired from what it forgot */
		printf("%c lets its counter expire\n", node(n))
	}
}

proctype faults() {
	do
	each(expire)
	each(forget)
	each(lapse)
	od
}

init {
	atomic {
		run attempt(Alice);
		run faults();
		run attempt(Bob)
	}
}
