/*
 * A model of docs/delivery.md for the checker Spin. `run` checks it.
 *
 * The model has one direction: A's program queues messages, and B's program takes them. The other direction
 * has the same rules, but carries no messages here. B has an epoch for it, and a record of that direction can
 * be the first one after a `resume` (OTHER). A message has two chunks, so that a link can be lost in the
 * middle of a message. The model has no credit.
 *
 * Each side has a state in memory and a committed state. A crash loses the state in memory: the side opens its
 * store as a new instance. A rollback also replaces the committed state by an older copy, which was made at any
 * commit point. A loss leaves an empty store. B's program keeps a record of the messages that it has taken. A
 * rollback of B's store also rolls this record back, so messages that were taken after the copy was made count as
 * not taken. A loss of B's store leaves the record as it is.
 *
 * A link can be cut at any time. A side may notice it at once, later, or when it begins to use the next link;
 * until then it still takes what is in flight. A new link can also come up while both sides still use the old
 * one. From any state on, faults may stop for good (`quiet`). Then every message must get a fate.
 *
 * Every step is one transition. Messages have the identities 1, 2, 3 in the order in which they are queued, and
 * sets are bit masks. An identity is never used again, but each epoch numbers its messages from 1. Tokens and
 * epochs are small numbers here, and 0 is the identifier of zeros.
 *
 * Bounds are macros: see the defaults below. MISTAKE selects a seeded mistake:
 *    1  `confirm` is sent before the position is committed
 *    2  the mark that a message may have left is not committed: a restarted sender uses its number again
 *    3  neither side checks whether it was rolled back
 *    4  the receiver takes chunks from an old link after it has sent `resume` on a new one
 *    5  the sender does not check positions: it takes *held* for *confirmed*
 *    6  a side takes over the peer's token and epoch at `resume`, not at the first record after it
 *    7  a `confirm` of another epoch counts
 *    8  the sender does not check whether the peer's state continues
 *    9  the peer's state also counts as continuing if *peer epoch* is this side's epoch
 *   10  after a rollback, the unmarked messages of the store do not become unknown
 *   11  `resume` has a position *confirmed* that is not committed
 *   12  a side's token is not added to the tokens that count as its own
 *   13  an identifier of a lost store, if the peer names it, counts as a sign of a rollback
 *   14  a side that knows no epoch of its peer takes over the peer's epoch only at the first record after `resume`
 *   15  a gap in another epoch shows a rollback only if the peer names a token of this store; A names none before B
 *       has sent a record after `resume`
 */

#ifndef MISTAKE
#define MISTAKE 0
#endif
#ifndef MESSAGES            /* how many messages A's program queues */
#define MESSAGES 3
#endif
#ifndef QUEUED_AT_START     /* how many of them it queues at the start; the others at any time */
#define QUEUED_AT_START MESSAGES
#endif
#ifndef CUTS                /* how often a link that is up is cut or replaced */
#define CUTS 2
#endif
#ifndef CRASHES_A
#define CRASHES_A 0
#endif
#ifndef CRASHES_B
#define CRASHES_B 0
#endif
#ifndef ROLLBACKS_A
#define ROLLBACKS_A 0
#endif
#ifndef ROLLBACKS_B
#define ROLLBACKS_B 0
#endif
#ifndef LOSSES_A
#define LOSSES_A 0
#endif
#ifndef LOSSES_B
#define LOSSES_B 0
#endif
#ifndef OTHERS              /* 1: a record of the other direction can be the first after `resume` */
#define OTHERS 0
#endif
#ifndef ROOM                /* how many records a link holds in one direction, besides `resume` */
#define ROOM 2
#endif

#define A 0
#define B 1
#define NONE 2              /* a side that uses no link */
#define CHUNK 1
#define EPOCH 2
#define OTHER 3
#define FRESH 0             /* how an instance began: with an empty store, */
#define RESTORED 1          /* with what a store had, */
#define ROLLED 2            /* with what a store had, which turned out to be an older copy */

#define BIT(n) (1 << (n))
#define IN(n, set) (((set) >> (n)) & 1)
#define SIZE(set) (IN(1, set) + IN(2, set) + IN(3, set) + IN(4, set))

/* What A's store has. */
typedef Sender {
  byte queued;               /* all messages that the program queued: for the checks only */
  byte pending;
  byte confirmed;
  byte unknown;
  byte left;                /* pending messages that are marked: they may have left */
  byte first;               /* the number of the first pending message */
  byte epoch;
  byte epochs, tokens;      /* all epochs and tokens that count as A's own */
  byte seenToken, seenEpoch;     /* what B's last `resume` had */
  byte peerToken, peerEpoch;     /* B's token and epoch, taken over */
  byte past;                /* B's earlier epochs */
  byte firstEpoch, firstToken    /* lower numbers belong to a store that was lost */
};

/* What B's store has. */
typedef Receiver {
  byte taken;               /* the messages that the program has taken */
  byte own;                 /* B's own epoch, of the other direction */
  byte epochs, tokens;
  byte peerToken, peerEpoch;
  byte past;
  byte confirmed;           /* the position in *peer epoch* */
  byte firstEpoch, firstToken;
  bool met;                 /* a `resume` of A has arrived */
  byte seen                 /* the epoch in the last `resume` or `epoch` of A */
};

Sender a;                   /* A's state in memory */
Sender aStore;              /* A's committed state */
Receiver b;
Receiver bStore;
#if ROLLBACKS_A
Sender aCopy;               /* an older copy of A's store */
bool aCopied;
#endif
#if ROLLBACKS_B
Receiver bCopy;
bool bCopied;
#endif

/* A, in memory only. */
byte tokenA = 1;
byte originA = FRESH;
byte begun;                 /* pending messages of which a byte may have left */
byte whole;                 /* pending messages of which the last byte may have left */
byte old;                   /* messages that were pending when this instance began */
byte nextNumber;            /* the next chunk to send */
byte nextOffset;
byte arrivedToken, arrivedEpoch;   /* from B's `resume` on this link; 0 once they are taken over */
bool silentA = 1;           /* A has sent nothing after `resume` */
bool waitsA;                /* B was rolled back: A waits until B ends the link */

/* B, in memory only. */
byte tokenB = 1;
byte originB = FRESH;
byte waiting;               /* whole messages of this epoch that wait for the program */
byte waitingOld;            /* whole messages of earlier epochs that wait for the program */
byte held;                  /* the position *held* */
byte partial;               /* the message of which B has the first chunk, or 0 */
byte told;                  /* the position *confirmed* that A was told on this link */
byte fromToken, fromEpoch, fromFirst;   /* from A's `resume` on this link; 0 once they are taken over */
bool silentB = 1;
bool waitsB;
#define OFFSET (partial -> 1 : 0)

/* The numbers drawn last. Each side has its own series of tokens, and of epochs. */
byte lastMessage, lastEpochA = 1, lastEpochB = 1, lastTokenA = 1, lastTokenB = 1;

/* What the checks remember. No fault changes it. */
byte everWhole;             /* messages whose last byte has left */
byte doubt;                 /* messages of which a restarted A cannot know whether they have left */
byte undone;                /* taken messages that a rollback of B has undone */
bool lost;                  /* a store was lost or rolled back */
bool rolledBackA, rolledBackB;   /* the store of this side was rolled back */

/* The faults that may still happen. */
byte cuts = CUTS;
byte crashesA = CRASHES_A, crashesB = CRASHES_B;
byte rollbacksA = ROLLBACKS_A, rollbacksB = ROLLBACKS_B;
byte lossesA = LOSSES_A, lossesB = LOSSES_B;
bool quiet;

/* Links. There are at most two at once: the newest, and the one before it. */
byte newest;
bool up;                    /* the newest link is up */
byte link[2] = NONE;        /* the link that each side uses */
bool sent[2];               /* the side has sent `resume` on its link */
bool ready[2];              /* the side has received the peer's `resume` there */

typedef Resumes {           /* the two `resume` in flight on one link */
  bool fromA;
  byte aToken, aPeerToken, aEpoch, aFirst, aPeerEpoch;
  bool fromB;
  byte bToken, bPeerToken, bEpoch, bPeerEpoch, bConfirmed, bHeld, bOffset
};
Resumes resume[2];
chan toB[2] = [ROOM] of { byte, byte, byte, byte };   /* CHUNK number offset message, EPOCH epoch, OTHER */
chan toA[2] = [ROOM] of { byte, byte };               /* confirm: epoch and position; OTHER: 0 0 */

/* Used within one step only. Usually l is a link, k an epoch or the kind of a record, m a message, n its number,
   and o an offset; r is "rolled back", and g is "the peer's state continues". */
byte l, k, m, n, o;
bit r, g;

#define COPY_SENDER(to, from) \
  to.queued = from.queued; to.pending = from.pending; to.confirmed = from.confirmed; \
  to.unknown = from.unknown; to.left = from.left; to.first = from.first; \
  to.epoch = from.epoch; to.epochs = from.epochs; to.tokens = from.tokens; \
  to.seenToken = from.seenToken; to.seenEpoch = from.seenEpoch; \
  to.peerToken = from.peerToken; to.peerEpoch = from.peerEpoch; to.past = from.past; \
  to.firstEpoch = from.firstEpoch; to.firstToken = from.firstToken
#define CLEAR_SENDER(it) \
  it.queued = 0; it.pending = 0; it.confirmed = 0; it.unknown = 0; it.left = 0; it.first = 0; \
  it.epoch = 0; it.epochs = 0; it.tokens = 0; it.seenToken = 0; it.seenEpoch = 0; \
  it.peerToken = 0; it.peerEpoch = 0; it.past = 0; it.firstEpoch = 0; it.firstToken = 0
#define COPY_RECEIVER(to, from) \
  to.taken = from.taken; to.own = from.own; to.epochs = from.epochs; to.tokens = from.tokens; \
  to.peerToken = from.peerToken; to.peerEpoch = from.peerEpoch; to.past = from.past; \
  to.confirmed = from.confirmed; \
  to.firstEpoch = from.firstEpoch; to.firstToken = from.firstToken; to.met = from.met; \
  to.seen = from.seen
#define CLEAR_RECEIVER(it) \
  it.taken = 0; it.own = 0; it.epochs = 0; it.tokens = 0; it.peerToken = 0; it.peerEpoch = 0; \
  it.past = 0; it.confirmed = 0; it.firstEpoch = 0; it.firstToken = 0; it.met = 0; \
  it.seen = 0
#define COMMIT_A COPY_SENDER(aStore, a)
#define COMMIT_B COPY_RECEIVER(bStore, b)

inline forgetResumeA(x) {
  resume[x].fromA = 0; resume[x].aToken = 0; resume[x].aPeerToken = 0; resume[x].aEpoch = 0;
  resume[x].aFirst = 0; resume[x].aPeerEpoch = 0
}

inline forgetResumeB(x) {
  resume[x].fromB = 0; resume[x].bToken = 0; resume[x].bPeerToken = 0; resume[x].bEpoch = 0;
  resume[x].bPeerEpoch = 0; resume[x].bConfirmed = 0; resume[x].bHeld = 0; resume[x].bOffset = 0
}

inline emptyToA(x) {
  do :: nempty(toA[x]) -> toA[x]?_,_ :: empty(toA[x]) -> break od;
  forgetResumeB(x)
}

inline emptyToB(x) {
  do :: nempty(toB[x]) -> toB[x]?_,_,_,_ :: empty(toB[x]) -> break od;
  forgetResumeA(x)
}

/* The next copy may be made. A copy that no rollback can use is cleared, since it would only multiply the states. */
inline forgetCopies() {
#if ROLLBACKS_A
  aCopied = 0;
  if :: rollbacksA == 0 -> CLEAR_SENDER(aCopy) :: else fi;
#endif
#if ROLLBACKS_B
  bCopied = 0;
  if :: rollbacksB == 0 -> CLEAR_RECEIVER(bCopy) :: else fi;
#endif
  skip
}

/* A side that has dropped a link takes nothing from that link: what its peer sends there is lost. */
#if MISTAKE == 4
#define READS(side, x) (1)
#else
#define READS(side, x) (link[side] == (x) || (up && newest == (x)))
#endif

/* A side drops its link, and all that is in flight on it to this side. */
inline dropA() {
  if :: link[A] != NONE -> emptyToA(link[A]); link[A] = NONE :: else fi;
  sent[A] = 0; ready[A] = 0; nextNumber = 0; nextOffset = 0;
  arrivedToken = 0; arrivedEpoch = 0; silentA = 1; waitsA = 0
}

inline dropB() {
  if
  :: link[B] != NONE ->
#if MISTAKE != 4
     emptyToB(link[B]);
#endif
     link[B] = NONE
  :: else
  fi;
  sent[B] = 0; ready[B] = 0; told = 0;
  fromToken = 0; fromEpoch = 0; fromFirst = 0; silentB = 1; waitsB = 0
}

/* A side ends its link. */
inline endA() { if :: link[A] == newest -> up = 0 :: else fi; dropA() }
inline endB() { if :: link[B] == newest -> up = 0 :: else fi; dropB() }

inline drawTokenA() { lastTokenA++; assert(lastTokenA < 8); tokenA = lastTokenA }
inline drawTokenB() { lastTokenB++; assert(lastTokenB < 8); tokenB = lastTokenB }

/* The token counts as the side's own from the peer's first `resume` on. */
inline ownTokenA() {
#if MISTAKE != 12
  a.tokens = a.tokens | BIT(tokenA)
#else
  skip
#endif
}

/* The token is committed at once, since B sends nothing before it is committed. */
inline ownTokenB() { b.tokens = b.tokens | BIT(tokenB); bStore.tokens = b.tokens }

/* A side begins a new instance with what its store has. */
inline openA(origin) {
  dropA(); up = 0;
  COPY_SENDER(a, aStore);
  originA = origin; drawTokenA();
  begun = a.left; whole = a.left; old = a.pending;
  doubt = doubt | a.left | (rolledBackA -> a.pending : 0)
}

inline openB(origin) {
  dropB(); up = 0;
  COPY_RECEIVER(b, bStore);
  originB = origin; drawTokenB();
  waiting = 0; waitingOld = 0; partial = 0; held = b.confirmed
}

/* A begins a new epoch. The messages `gone` become unknown, the others get new numbers. */
inline beginEpoch(gone) {
  printf("A begins epoch %d, unknown: set %d\n", lastEpochA + 1, (gone));
  /* Truth: an unknown message may have left, and a state was lost. */
  assert(lost && ((gone) & ~(everWhole | doubt)) == 0);
  a.unknown = a.unknown | (gone); a.pending = a.pending & ~(gone);
  lastEpochA++; assert(lastEpochA < 8);
  a.epoch = lastEpochA; a.epochs = a.epochs | BIT(lastEpochA);
  a.first = 1; a.left = 0; begun = 0; whole = 0; old = old & a.pending
}

/* The messages up to this number are confirmed. */
inline confirmUpTo(number) {
  do
  :: a.first <= number && a.pending ->
     m = 1;
     do :: IN(m, a.pending) -> break :: else -> m++ od;
     printf("A: message %d is confirmed\n", m);
     /* Truth: the program of B has taken a confirmed message, and B has committed it. */
     assert(IN(m, bStore.taken | undone));
     a.confirmed = a.confirmed | BIT(m); a.pending = a.pending & ~BIT(m);
     a.left = a.left & ~BIT(m); begun = begun & ~BIT(m); whole = whole & ~BIT(m);
     old = old & ~BIT(m);
     a.first++
  :: else -> break
  od;
  a.first = (number >= a.first -> number + 1 : a.first);   /* changes `first` only with a seeded mistake */
  m = 0
}

/* The number of the last message of which all bytes may have left, and of the last of which a byte may have. */
#define LAST_WHOLE (a.first - 1 + SIZE(a.pending & whole))
#define LAST_BEGUN (a.first - 1 + SIZE(a.pending & begun))
/* The positions exceed what may have left. */
#define EXCEED(it) (it.bConfirmed > it.bHeld || it.bHeld > LAST_WHOLE || \
                    (it.bOffset && it.bHeld >= LAST_BEGUN))
/* An identifier that the peer names shows a later state of this side's store: it is neither zeros nor in the set, and
   it is not excused as an identifier of a lost store. Identifiers below `first` are of a lost store. They are excused
   if this side has not met its peer, or if the set has another identifier of a lost store. */
#if MISTAKE == 13
#define ALIEN(id, set, first, met) ((id) != 0 && !IN(id, set))
#else
#define ALIEN(id, set, first, met) \
  ((id) != 0 && !IN(id, set) && ((id) >= (first) || ((met) && ((set) & (BIT(first) - 2)) == 0)))
#endif

/* A takes over B's token and epoch, at the first record after B's `resume`. */
inline meetB() {
  if
  :: arrivedToken ->
     a.peerToken = arrivedToken;
     if
     :: a.peerEpoch != arrivedEpoch ->
        a.past = (a.past | BIT(a.peerEpoch)) & ~1; a.peerEpoch = arrivedEpoch
     :: else
     fi;
     printf("A takes over token %d and epoch %d\n", arrivedToken, arrivedEpoch);
     arrivedToken = 0; arrivedEpoch = 0
  :: else
  fi
}

/* B goes to another position of A's epoch. */
inline position(number) {
  b.confirmed = (number); held = (number); partial = 0; told = (number);
  waitingOld = waitingOld | waiting; waiting = 0
}

inline takeOver(id, number) {
  printf("B takes over epoch %d from number %d\n", id, number);
  b.past = (b.past | BIT(b.peerEpoch)) & ~1; b.peerEpoch = id;
  position((number) - 1)
}

inline meetA() {
  if
  :: fromToken ->
     b.peerToken = fromToken;
     if :: b.peerEpoch != fromEpoch -> takeOver(fromEpoch, fromFirst) :: else fi;
     fromToken = 0; fromEpoch = 0; fromFirst = 0
  :: else
  fi
}

/* B receives CHUNK n o m. */
inline takeChunk() {
  printf("B takes chunk %d of number %d (message %d)\n", o, n, m);
  assert(n == held + 1 && o == OFFSET);
  if
  :: o == 0 -> partial = m
  :: else ->
     assert(partial == m);                                   /* both chunks are of one message */
     assert(!IN(m, b.taken | waiting | waitingOld));         /* no duplicate */
     assert((b.taken | waiting | waitingOld) < BIT(m));      /* order */
     waiting = waiting | BIT(m); held++; partial = 0
  fi
}

init {
  d_step {
    a.first = 1; a.epoch = 1; a.epochs = BIT(1); a.firstEpoch = 1; a.firstToken = 1;
    b.own = 1; b.epochs = BIT(1); b.firstEpoch = 1; b.firstToken = 1;
    do
    :: lastMessage < QUEUED_AT_START ->
       lastMessage++; a.pending = a.pending | BIT(lastMessage); a.queued = a.pending
    :: else -> break
    od;
    COMMIT_A; COMMIT_B;
#if ROLLBACKS_A
    COPY_SENDER(aCopy, aStore);
#endif
#if ROLLBACKS_B
    COPY_RECEIVER(bCopy, bStore);
#endif
  };

  do

  /* Links and faults. */

  :: d_step {
       !quiet && cuts + crashesA + crashesB + rollbacksA + rollbacksB + lossesA + lossesB > 0 ->
       quiet = 1; cuts = 0; crashesA = 0; crashesB = 0; rollbacksA = 0; rollbacksB = 0;
       lossesA = 0; lossesB = 0;
       forgetCopies() }
  :: d_step { (!up || cuts > 0) && link[A] != 1 - newest && link[B] != 1 - newest ->
       if :: up -> cuts-- :: else fi;
       newest = 1 - newest; up = 1; emptyToA(newest); emptyToB(newest);
       printf("link %d comes up\n", newest) }
  :: d_step { up && cuts > 0 -> up = 0; cuts--; printf("link %d is cut\n", newest) }
#if CRASHES_A
  :: d_step { crashesA > 0 -> crashesA--; printf("A crashes\n"); openA(RESTORED) }
#endif
#if CRASHES_B
  :: d_step { crashesB > 0 -> crashesB--; printf("B crashes\n"); openB(RESTORED) }
#endif
#if ROLLBACKS_A
  :: d_step { rollbacksA > 0 && !aCopied ->
       aCopied = 1; COPY_SENDER(aCopy, aStore); printf("A's store is copied\n") }
  :: d_step { rollbacksA > 0 -> rollbacksA--; lost = 1; rolledBackA = 1; printf("A is rolled back\n");
       COPY_SENDER(aStore, aCopy); openA(RESTORED); forgetCopies() }
#endif
#if ROLLBACKS_B
  :: d_step { rollbacksB > 0 && !bCopied ->
       bCopied = 1; COPY_RECEIVER(bCopy, bStore); printf("B's store is copied\n") }
  :: d_step { rollbacksB > 0 -> rollbacksB--; lost = 1; rolledBackB = 1; printf("B is rolled back\n");
       undone = undone | (bStore.taken & ~bCopy.taken);
       COPY_RECEIVER(bStore, bCopy); openB(RESTORED); forgetCopies() }
#endif
#if LOSSES_A
  :: d_step { lossesA > 0 -> lossesA--; lost = 1; printf("A's store is lost\n");
       CLEAR_SENDER(aStore);
       lastEpochA++; assert(lastEpochA < 8);
       aStore.first = 1; aStore.epoch = lastEpochA; aStore.epochs = BIT(lastEpochA);
       aStore.firstEpoch = lastEpochA; aStore.firstToken = lastTokenA + 1;
       openA(FRESH) }
#endif
#if LOSSES_B
  :: d_step { lossesB > 0 -> lossesB--; lost = 1; printf("B's store is lost\n");
#if ROLLBACKS_A
       undone = undone | bStore.taken; k = 0;                /* an exception to "no duplicate" */
#else
       k = bStore.taken;
#endif
       CLEAR_RECEIVER(bStore);
       lastEpochB++; assert(lastEpochB < 8);
       bStore.own = lastEpochB; bStore.epochs = BIT(lastEpochB); bStore.taken = k; k = 0;
       bStore.firstEpoch = lastEpochB; bStore.firstToken = lastTokenB + 1;
       openB(FRESH) }
#endif

  /* A side notices that its link was lost or replaced, begins to use the newest link, or sends `resume`. */

  :: d_step { link[A] != NONE && (link[A] != newest || !up) -> dropA() }
  :: d_step { link[B] != NONE && (link[B] != newest || !up) -> dropB() }
  :: d_step { up && link[A] != newest -> dropA(); link[A] = newest }
  :: d_step { up && link[B] != newest -> dropB(); link[B] = newest }
  :: d_step { up && link[A] == newest && !sent[A] &&
       a.peerToken == aStore.peerToken && a.peerEpoch == aStore.peerEpoch ->
       sent[A] = 1; resume[newest].fromA = 1;
       resume[newest].aToken = tokenA; resume[newest].aPeerToken = a.peerToken;
       resume[newest].aEpoch = a.epoch; resume[newest].aFirst = a.first;
       resume[newest].aPeerEpoch = a.peerEpoch;
       printf("A sends resume on link %d: token %d peer token %d epoch %d first %d\n",
              newest, tokenA, a.peerToken, a.epoch, a.first) }
  :: d_step { up && link[B] == newest && !sent[B] &&
       b.peerToken == bStore.peerToken && b.peerEpoch == bStore.peerEpoch ->
       sent[B] = 1; resume[newest].fromB = 1;
       resume[newest].bToken = tokenB; resume[newest].bPeerToken = b.peerToken;
       resume[newest].bEpoch = b.own; resume[newest].bPeerEpoch = b.peerEpoch;
#if MISTAKE == 11
       told = b.confirmed;
#else
       told = bStore.confirmed;
#endif
       resume[newest].bConfirmed = told; resume[newest].bHeld = held;
       resume[newest].bOffset = OFFSET;
       printf("B sends resume on link %d: token %d peer token %d epoch %d\n",
              newest, tokenB, b.peerToken, b.own);
       printf("  peer epoch %d confirmed %d held %d offset %d\n", b.peerEpoch, told, held, OFFSET) }
  :: d_step { link[B] == NONE && (waiting || partial) ->     /* B drops unconfirmed messages */
       waiting = 0; partial = 0; held = b.confirmed }

  /* The sender. */

  :: d_step { lastMessage < MESSAGES ->
       lastMessage++; a.pending = a.pending | BIT(lastMessage); a.queued = a.queued | BIT(lastMessage);
       COMMIT_A; printf("A's program queues message %d\n", lastMessage) }

  :: d_step { link[A] != NONE && !ready[A] && resume[link[A]].fromB ->
       l = link[A]; printf("A receives resume on link %d\n", l);
       k = resume[l].bPeerEpoch;
       /* Step 1 of "A received `resume`" in docs/delivery.md. r: A was rolled back. */
       r = originA == RESTORED &&
           (ALIEN(resume[l].bPeerToken, a.tokens, a.firstToken, a.seenToken) ||
            ALIEN(k, a.epochs, a.firstEpoch, a.seenToken) || (k == a.epoch && EXCEED(resume[l])));
#if MISTAKE == 3
       r = 0;
#endif
       if
       :: r ->
          printf("A notices that it was rolled back\n");
          assert(rolledBackA);                               /* A is right */
          originA = ROLLED;
          a.epochs = a.epochs | BIT(k); a.tokens = a.tokens | BIT(resume[l].bPeerToken);
#if MISTAKE == 10
          beginEpoch(a.pending & whole);
#else
          beginEpoch(a.pending & (old | whole));
#endif
          drawTokenA(); ownTokenA(); COMMIT_A;
          endA()
       :: else ->
          ready[A] = 1; ownTokenA();
          /* What B names may belong to a store that was lost. */
          a.tokens = (a.tokens | BIT(resume[l].bPeerToken)) & ~1; a.epochs = (a.epochs | BIT(k)) & ~1;
          if
          :: IN(resume[l].bEpoch, a.past) -> waitsA = 1      /* step 2 */
          :: else ->
             /* Step 3. g: B's state continues. */
             g = resume[l].bToken == a.seenToken || resume[l].bEpoch == a.seenEpoch;
#if MISTAKE == 8
             g = 1;
#elif MISTAKE == 9
             g = g || k == a.epoch;
#endif
             a.seenToken = resume[l].bToken; a.seenEpoch = resume[l].bEpoch;
             arrivedToken = resume[l].bToken; arrivedEpoch = resume[l].bEpoch;
             /* Step 5. */
#if MISTAKE != 5
             assert(k != a.epoch || !EXCEED(resume[l]));
#endif
             r = k == a.epoch && resume[l].bConfirmed < a.first - 1;   /* r: *confirmed* is less than before */
             if
             :: g && r ->
                assert(resume[l].bToken != a.peerToken);
                waitsA = 1
             :: g && !r && k == a.epoch ->
#if MISTAKE == 5
                confirmUpTo(resume[l].bHeld);
#else
                confirmUpTo(resume[l].bConfirmed);
#endif
                nextNumber = resume[l].bHeld + 1; nextOffset = resume[l].bOffset
             :: g && k != a.epoch -> nextNumber = a.first; nextOffset = 0
             :: !g && !r && (a.pending & whole) == 0 ->
                nextNumber = a.first;                        /* B may have a part of it */
                nextOffset = (k == a.epoch -> resume[l].bOffset : 0)
             :: !g && (r || (a.pending & whole)) ->
                beginEpoch(a.pending & whole);
                nextNumber = 1; nextOffset = 0; n = sent[A]  /* n: A sends `epoch` */
             fi;
             COMMIT_A;
#if MISTAKE == 6
             meetB();
#endif
             if
             :: n ->
                silentA = 0;
                if :: READS(B, l) -> toB[l]!EPOCH,a.epoch,0,0 :: else fi
             :: else
             fi
          fi;
          forgetResumeB(l)
       fi;
       assert(a.queued == (a.pending | a.confirmed | a.unknown));   /* no loss */
       l = 0; k = 0; n = 0; r = 0; g = 0 }

#define SENDS_A (sent[A] && ready[A] && !waitsA && nfull(toB[link[A]]))
#define SENDS_B (sent[B] && ready[B] && !waitsB && nfull(toA[link[B]]))

  :: d_step { SENDS_A && nextNumber >= a.first && nextNumber - a.first < SIZE(a.pending) ->
       m = 1; n = nextNumber - a.first;                      /* the pending message with this number */
       do
       :: IN(m, a.pending) && n == 0 -> break
       :: IN(m, a.pending) && n > 0 -> n--; m++
       :: else -> m++
       od;
       if
       :: !IN(m, a.left) ->                                  /* A marks it first */
          a.left = a.left | BIT(m);
#if MISTAKE != 2
          COMMIT_A;
#endif
          printf("A marks message %d\n", m)
       :: else ->
          printf("A sends chunk %d of number %d (message %d)\n", nextOffset, nextNumber, m);
          if :: READS(B, link[A]) -> toB[link[A]]!CHUNK,nextNumber,nextOffset,m :: else fi;
          silentA = 0;
          begun = begun | BIT(m);
          if
          :: nextOffset == 0 -> nextOffset = 1
          :: else ->
             nextOffset = 0; nextNumber++;
             whole = whole | BIT(m); everWhole = everWhole | BIT(m)
          fi
       fi;
       m = 0; n = 0 }

#if OTHERS
  :: d_step { SENDS_A && silentA ->
       silentA = 0;
       if :: READS(B, link[A]) -> toB[link[A]]!OTHER,0,0,0 :: else fi }
  :: d_step { SENDS_B && silentB ->
       silentB = 0;
       if :: READS(A, link[B]) -> toA[link[B]]!0,0 :: else fi }
#endif

  :: d_step { ready[A] && !waitsA && nempty(toA[link[A]]) ->
       toA[link[A]]?k,n;
       meetB();
#if MISTAKE == 7
       k = (k -> a.epoch : 0);
#endif
       if
       :: k == a.epoch ->
          printf("A receives confirm %d\n", n);
#if MISTAKE != 7
          assert(n >= a.first && n <= LAST_WHOLE);
#endif
          confirmUpTo(n)
       :: else                                               /* the `confirm` has crossed an `epoch` */
       fi;
       n = 0; k = 0 }

  /* A commits, at any time, what a record of B has changed. */
  :: d_step { aStore.first != a.first || aStore.peerToken != a.peerToken ||
       aStore.peerEpoch != a.peerEpoch -> COMMIT_A }

  /* The receiver. */

  :: d_step { link[B] != NONE && !ready[B] && resume[link[B]].fromA ->
       l = link[B]; printf("B receives resume on link %d\n", l);
       k = resume[l].aEpoch;
       g = (k == b.peerEpoch && resume[l].aFirst > b.confirmed + 1) ||
           (k != b.peerEpoch && !IN(k, b.past) && resume[l].aFirst > 1);   /* g: *first* leaves a gap */
       r = originB == RESTORED &&
           (ALIEN(resume[l].aPeerToken, b.tokens, b.firstToken, b.met) ||
            ALIEN(resume[l].aPeerEpoch, b.epochs, b.firstEpoch, b.met) ||
#if MISTAKE == 15
            (g && (k == b.peerEpoch || resume[l].aPeerToken >= b.firstToken)));
#else
            (g && (k == b.peerEpoch || k == b.seen || resume[l].aPeerToken >= b.firstToken)));
#endif
#if MISTAKE == 3
       r = 0;
#endif
       if
       :: r ->
          printf("B notices that it was rolled back\n");
          assert(rolledBackB);                               /* B is right */
          originB = ROLLED;
          b.epochs = b.epochs | BIT(resume[l].aPeerEpoch);
          b.tokens = b.tokens | BIT(resume[l].aPeerToken);
          lastEpochB++; assert(lastEpochB < 8);
          b.own = lastEpochB; b.epochs = b.epochs | BIT(lastEpochB);
          if
          :: g && k == b.peerEpoch -> position(resume[l].aFirst - 1)
          :: g && k != b.peerEpoch -> takeOver(k, resume[l].aFirst); b.met = 1
          :: else
          fi;
          drawTokenB(); ownTokenB(); COMMIT_B;
          endB()
       :: else ->
          /* If B was rolled back and knows the epoch of a gap, B has noticed the rollback above. */
          assert(!(g && k == b.seen && rolledBackB && originB == RESTORED));
          ready[B] = 1;
          b.met = 1; bStore.met = 1;
          b.tokens = (b.tokens | BIT(resume[l].aPeerToken)) & ~1;
          b.epochs = (b.epochs | BIT(resume[l].aPeerEpoch)) & ~1; bStore.epochs = b.epochs;
          ownTokenB();
          if
          :: IN(k, b.past) -> waitsB = 1                     /* step 2 */
          :: else ->
             b.seen = k; bStore.seen = k;
             if
             :: k == b.peerEpoch && resume[l].aFirst > b.confirmed + 1 ->   /* step 4 */
                assert(originB == ROLLED);
                position(resume[l].aFirst - 1)
#if MISTAKE != 14
             :: b.peerEpoch == 0 && resume[l].aFirst > 1 ->
                takeOver(k, resume[l].aFirst); COMMIT_B
#endif
             :: else
             fi;
             fromToken = resume[l].aToken; fromEpoch = k; fromFirst = resume[l].aFirst;
#if MISTAKE == 6
             meetA();
#endif
          fi;
          forgetResumeA(l)
       fi;
       l = 0; k = 0; r = 0; g = 0 }

  :: d_step { ready[B] && !waitsB && nempty(toB[link[B]]) ->
       toB[link[B]]?k,n,o,m;
       meetA();
       if
       :: k == EPOCH -> assert(n != b.peerEpoch && !IN(n, b.past)); takeOver(n, 1); b.seen = n
       :: k == CHUNK -> takeChunk()
       :: else
       fi;
       k = 0; n = 0; o = 0; m = 0 }
#if MISTAKE == 4
  :: d_step { link[B] != NONE && sent[B] && nempty(toB[1 - link[B]]) ->
       toB[1 - link[B]]?k,n,o,m;
       if :: k == CHUNK && n == held + 1 && o == OFFSET -> takeChunk() :: else fi;
       k = 0; n = 0; o = 0; m = 0 }
#endif

  :: d_step { waiting || waitingOld ->                       /* B's program takes a message */
       m = 1;
       do :: IN(m, waiting | waitingOld) -> break :: else -> m++ od;
       b.taken = b.taken | BIT(m);
       if
       :: IN(m, waitingOld) -> waitingOld = waitingOld & ~BIT(m)
       :: else -> waiting = waiting & ~BIT(m); b.confirmed++
       fi;
       printf("B's program takes message %d\n", m);
       m = 0 }

  :: d_step { b.taken != bStore.taken || b.confirmed != bStore.confirmed ||
       b.peerEpoch != bStore.peerEpoch || b.peerToken != bStore.peerToken ->
       COMMIT_B; printf("B commits\n") }

#if MISTAKE == 1
#define MAY_TELL b.confirmed
#else
#define MAY_TELL bStore.confirmed
#endif
  :: d_step { SENDS_B && b.peerEpoch == bStore.peerEpoch && b.peerToken == bStore.peerToken &&
       MAY_TELL > told ->
       told = MAY_TELL; silentB = 0;
       if :: READS(A, link[B]) -> toA[link[B]]!b.peerEpoch,told :: else fi;
       printf("B sends confirm %d in epoch %d\n", told, b.peerEpoch) }

  /* Nothing can happen any more: a link is up, no message is pending, none is lost. */

  :: timeout ->
       assert(up && a.pending == 0 && a.queued == (a.confirmed | a.unknown));
       assert(lost || a.unknown == 0);
       break
  od
}
