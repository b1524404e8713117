/* RedLock as a model for the checker Spin; ../model.md explains it. The names are those of package redlock.
 *
 * Each script on one node is one atomic step, with its request and its reply. Between two steps anything else may happen, and a
 * contender may stop for ever. Left out: adopt, bootstrap, check, inspect.
 */
#ifndef GUARD
#define GUARD 1    /* 0: WithoutGuard */
#endif
#ifndef FENCES
#define FENCES 0   /* 2: WithFences, in two phases; 1: in one, each node counts for itself */
#endif
#ifndef RESTARTS
#define RESTARTS 0 /* how often node B comes back empty; the nodes are alike, so one will do */
#endif
#ifndef JUMPS
#define JUMPS 0    /* how often node B's clock jumps ahead */
#endif
#ifndef MAXTTL
#define MAXTTL TTL /* how long the guard lets a node wait */
#endif
#ifndef DRIFT
#define DRIFT 1    /* how much of the TTL a holder does not use, because a node's clock may be faster */
#endif

#define NODES 3
#ifndef QUORUM
#define QUORUM (NODES / 2 + 1)
#endif
#define TTL 2      /* units of time */
#define FASTER 1   /* by how much a node's clock may be */

/* Nodes. ttl and wait count down. */
#define A 0
#define B 1
#define C 2
mtype = { Bob, Alice };  /* Spin numbers them from the end: Alice is 1 */
mtype key[NODES];        /* the holder's token; 0: the lock is free */
byte ttl[NODES];         /* until the key expires */
bool guarded[NODES] = 1; /* the guard's hash is there: the node was bootstrapped */
byte wait[NODES];        /* until the guard lets the node vote */
byte counter[NODES];     /* the last fence that it knows */

/* Contenders. Both arrays count down. */
byte inTime[3];   /* until a quorum would come too late */
byte validity[3]; /* until the holder's deadline; 0: it is no holder */
byte last;        /* the last holder's fence */

#define max(x, y) (x > y -> x : y)
#define node(n) 'A' + n
#define notYet(n) !(agreed & 1 << n)
#define agrees(n) agreed = agreed | 1 << n; yes++
#define must(property, else_say) if :: property :: else -> printf(else_say); assert(false) fi

inline guard(n) {
	if
	:: GUARD && !guarded[n] -> guarded[n] = 1; wait[n] = MAXTTL
	:: else
	fi
}

inline vote(n) {
	key[n] = me;
	ttl[n] = TTL;
	agrees(n);
	if
	:: FENCES == 0 -> printf("%c votes for %e\n", node(n), me)
	:: FENCES == 1 -> counter[n]++; fence = max(fence, counter[n])
	:: FENCES == 2 -> fence = max(fence, counter[n] + 1)
	fi;
	if
	:: FENCES -> printf("%c votes for %e; its counter is %d\n", node(n), me, counter[n])
	:: else
	fi
}

inline acquire(n) {
	d_step {
		notYet(n);
		guard(n);
		if
		:: !key[n] && !wait[n] -> vote(n)
		:: else /* it refuses */
		fi
	}
}

inline writeback(n) {
	d_step {
		notYet(n) && key[n] == me;
		agrees(n);
		counter[n] = max(counter[n], fence);
		printf("%c notes %e's fence %d\n", node(n), me, fence)
	}
}

inline extend(n) {
	d_step {
		notYet(n) && key[n] == me;
		agrees(n);
		ttl[n] = TTL;
		printf("%c extends %e's lock\n", node(n), me)
	}
}

inline join(n) {
	d_step {
		validity[me] && !key[n];
		guard(n);
		key[n] = me;
		ttl[n] = validity[me] + DRIFT;
		printf("%c joins the nodes that have %e's lock\n", node(n), me)
	}
}

inline release(n) {
	d_step {
		key[n] == me;
		expire(n);
		printf("%c deletes the key: %e releases\n", node(n), me)
	}
}

inline expire(n) {
	key[n] = 0;
	ttl[n] = 0
}

/* A round asks the nodes in any order. When a quorum has agreed, the next step follows; or the contender gives up. */
#define round(script, next) \
	do \
	:: script(A) \
	:: script(B) \
	:: script(C) \
	:: atomic { yes >= QUORUM -> agreed = 0; yes = 0; next; break } \
	:: goto giveBack \
	od

inline won() {
	if
	:: inTime[me] -> validity[me] = inTime[me]; inTime[me] = 0
	:: else -> goto giveBack
	fi;
	if
	:: FENCES -> printf("%e holds the lock, with fence %d\n", me, fence)
	:: else -> printf("%e holds the lock\n", me)
	fi;
	must(!validity[Alice] || !validity[Bob], "Two hold the lock at once\n")
}

inline granted() {
	won();
	must(!FENCES || fence > last, "The later hold has no greater fence\n");
	last = fence
}

proctype contender(mtype me) {
	byte agreed, yes, fence; /* agreed: a set of nodes; yes: how many */

elect:
	inTime[me] = TTL - DRIFT;
#if FENCES == 2
	round(acquire, skip);
	round(writeback, granted());
#else
	round(acquire, granted());
#endif
	do
	:: !FENCES -> /* an extension keeps the fence */
		inTime[me] = TTL - DRIFT;
		round(extend, won());
		do
		:: join(A)
		:: join(B)
		:: join(C)
		:: break
		od
	:: goto giveBack
	od;
giveBack:
	atomic { validity[me] = 0; inTime[me] = 0; agreed = 0; yes = 0 }
	do
	:: release(A)
	:: release(B)
	:: release(C)
	/* The next attempt has a fresh token, which no node has. With fences only if this one got no vote, or numbers grow for ever. */
	:: key[A] != me && key[B] != me && key[C] != me && !fence -> goto elect
	od
}

inline restart(n) {
	d_step {
		restarts < RESTARTS;
		restarts++;
		expire(n);
		guarded[n] = 0;
		wait[n] = 0;
		counter[n] = 0;
		printf("%c restarts, and has forgotten all\n", node(n))
	}
}

inline jump(n) {
	d_step {
		jumps < JUMPS;
		jumps++;
		expire(n);
		wait[n] = 0;
		printf("%c's clock jumps ahead: its key expires\n", node(n))
	}
}

inline drift(n) {
	atomic {
		if
		:: ttl[n] == FASTER -> expire(n); printf("%c's clock is a little fast: its key expires\n", node(n))
		:: wait[n] == FASTER -> wait[n] = 0; printf("%c's clock is a little fast: its wait is over\n", node(n))
		fi
	}
}

proctype faults() {
	byte restarts, jumps;

	do
	:: restart(B)
	:: jump(B)
	:: drift(A)
	:: drift(B)
	:: drift(C)
	od
}

#define down(x) x = max(x, 1) - 1
inline pass(n) {
	down(ttl[n]);
	down(wait[n]);
	key[n] = (ttl[n] -> key[n] : 0)
}

proctype time() {
	do
	:: d_step {
		pass(A); pass(B); pass(C);
		down(inTime[Alice]); down(inTime[Bob]); down(validity[Alice]); down(validity[Bob]);
		printf("a unit of time passes\n")
	}
	od
}

init {
	atomic {
		counter[A] = 7; counter[B] = 3; counter[C] = 3; /* A took part in attempts that failed */
		run time();
		run contender(Bob);
		run faults();
		run contender(Alice)
	}
}
