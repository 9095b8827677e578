// Package snowflake makes ids in this process, as a node of a registry of the PostgreSQL extension snowflake: 64-bit,
// time-ordered, and unique among those of all nodes of that registry, servers and programs.
//
// Why no id is issued twice.  All state is below one mutex.  An id is issued only by node.take, of a tick that begins at or
// after the lease's startsAt, ends at or before its leasedUntil, and comes after the last one.  Only the result of a call
// opens a lease or moves its end (granted, renewed), never past what was asked for.  A lease whose end may have been said
// (it is sealed) is never opened or renewed again.  So a process may stop anywhere, for any time: what it hands out late is
// still of the lease's time, which no other lease of the number has.
//
// Times are microseconds: of clocks since 1970-01-01 UTC; monotonic ones since any time.
package snowflake

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log"
	"math"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/lib/pq"
)

const (
	// MaxBatch is the most ids of one NextN.
	MaxBatch = 1_000_000

	// a first lease is short, so that crashes in a row use up few numbers
	firstWindow = 10 * second
	// what a lease lasts beyond what can be used at once
	reserve = second
	// it is renewed when about this part of the window is used
	renewDivisor = 4
	// after a failure the next call follows after about retry; while the registry is overloaded, twice as long each time
	retry, longestRetry = second, 12 * second
	leastRefusal        = second / 10
	// while ids can go on, no call waits longer than this part of what is left of the lease
	leftDivisor = 3
	// who waits asks again at least so often; who has not asked for longer than wanted has gone
	askAgain, wanted = second / 2, 2 * second
	// the keeper looks at the clock at least so often
	longestSleep = second
	// if the clock is behind by more than a call may wait, and than this, another number is taken; so often at most
	leastMove, moveAgain = second, second
	// no registry lets a lease start later than this after the first id that the clock does not allow yet
	latestStart = 10 * second
	// what lasts is logged so often
	logAgain     = 60 * second
	mostLines    = 16
	endedNumbers = 16
	forever      = math.MaxInt64
)

// errors that do not go away by waiting for MaxWait
var lasting = map[string]bool{"22023": true, "3D000": true, "3F000": true, "42501": true, "42883": true, "55000": true}

// as snowflake.printable() of the registry has it: control and format characters, line ends, other spaces, ...
var notPrintable = regexp.MustCompile(`[\x00-\x1f\x7f-\xa0\xad\x{34f}\x{600}-\x{605}\x{61c}\x{6dd}\x{70f}\x{890}\x{891}\x{8e2}` +
	`\x{115f}\x{1160}\x{1680}\x{17b4}\x{17b5}\x{180b}-\x{180f}\x{2000}-\x{200f}\x{2028}-\x{202f}\x{205f}-\x{206f}\x{3000}\x{3164}` +
	`\x{e000}-\x{f8ff}\x{fdd0}-\x{fdef}\x{fe00}-\x{fe0f}\x{feff}\x{ffa0}\x{fff0}-\x{fffb}\x{fffe}\x{ffff}\x{110bd}\x{110cd}` +
	`\x{13430}-\x{1343f}\x{1bca0}-\x{1bca3}\x{1d173}-\x{1d17a}\x{e0000}-\x{10ffff}]`)

// A Reason is why there is no id.
type Reason string

// The reasons, as doc/programs.md has them.
const (
	GaveUp       Reason = "GAVE_UP"
	TooFarAhead  Reason = "TOO_FAR_AHEAD"
	Refused      Reason = "REFUSED"
	NoNumberFree Reason = "NO_NUMBER_FREE"
	FieldFull    Reason = "FIELD_FULL"
	Interrupted  Reason = "INTERRUPTED"
	Closed       Reason = "CLOSED"
	// Invalid is an argument or an option that cannot be.
	Invalid Reason = "INVALID"
)

// An Error is why there is no id.  The message says what to do.  It is always right to try again later, but after Closed.
type Error struct {
	Reason  Reason
	message string
	cause   error
}

func (e *Error) Error() string { return e.message }

// Unwrap returns what the driver or the context has said, or nil.
func (e *Error) Unwrap() error { return e.cause }

// A problem is why the last call has given nothing.
type problem struct {
	message, sqlState string
	cause             error
	refused           bool // the registry has answered so: somebody must act, or time pass
	lasting           bool // waiting is of no use, or nobody knows
}

// A lease is a node number for a span of id time.
type lease struct {
	namedLease
	startsAt, window, renewAfter int64
}

type phase string

const (
	starting phase = "starting"
	ready    phase = "ready"
	retrying phase = "retrying"
	refused  phase = "refused"
)

// A node is the state of one start, and what keeps its lease.
type node struct {
	dsn, name, hostName string
	layout              *Layout
	maxAhead, maxWait   int64
	fullWindow          int64
	clock               func() int64
	log                 func(string)
	start               string
	launchedAt          int64

	lines   chan string   // from the keeper to the log
	printed chan struct{} // closed when the log has the last line
	event   chan struct{} // the keeper waits for it
	ended   chan struct{} // closed by the keeper

	mu           sync.Mutex
	changed      chan struct{} // who wants an id waits for it; closed at each change
	givenUp      chan struct{} // of the call that is out: closed when it is of no use any more
	renewing     bool          // it is a renewal
	closing      bool
	released     bool
	callNumber   int64
	uses         *string // the registry of the last lease
	lease        *lease  // the newest that was opened
	nodeBits     int64
	tick, seq    int64           // of the last id, or what stands for the one before the first
	issued       bool            // under this lease
	knownUntil   *int64          // where ids of leases that are over end: all of them,
	floor        *int64          // those of which the lease's registry may have no row,
	numberEnds   map[int64]int64 // and by number
	problem      *problem
	refusedUntil int64
	retryAt      int64
	overloads    uint
	wantedAt     int64
	movedAt      int64
	answeredBy   string
	newest       int64
	logged       map[string]int64
}

var zero = time.Now()

func monotonic() int64 { return time.Since(zero).Microseconds() }

func random(below int64) int64 {
	var bytes [8]byte
	if _, err := rand.Read(bytes[:]); err != nil {
		panic(err)
	}
	return int64(binary.BigEndian.Uint64(bytes[:])>>1) % below
}

// spread draws a time that is a quarter shorter to a quarter longer.
func spread(mean int64) int64 { return mean - mean/4 + random(mean/2+1) }

func newUUID() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err)
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func least(a, b int64) int64 {
	if a < b {
		return a
	}
	return b
}

func most(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}

// later returns the later of two times, of which each can be missing.
func later(a, b *int64) *int64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

func show(micros int64) string {
	return time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05.999999Z")
}

func seconds(micros int64) string { return fmt.Sprintf("%.3f s", float64(micros)/second) }

// floorDiv rounds down, also what is negative.
func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((b - 1 - a) / b)
	}
	return a / b
}

//
// Ids.  All this is called with the mutex.
//

func (n *node) isOpen() bool { return n.lease != nil && n.lease.IdsEndAt == nil }

// next returns tick and sequence of the next id, if the clock stands still.
func (n *node) next() (tick, seq int64) {
	if n.seq < n.layout.maxSequence() {
		return n.tick, n.seq + 1
	}
	return n.tick + 1, 0
}

type outcome int

const (
	issued outcome = iota
	sealed
	full
	ahead
	over
)

// take appends up to count ids of one tick.  Or it says why there is none, and how long until the clock allows it.
func (n *node) take(count int64, ids []int64) ([]int64, outcome, int64) {
	if !n.isOpen() {
		return ids, sealed, 0
	}
	l := n.layout
	tick, seq := n.next()
	now := n.clock()
	if at := floorDiv(now-l.epoch, l.tick); at > n.tick {
		// the low bits go on, so that ids of a slow program differ in them; with 0, a double would hold the id by chance
		tick, seq = at, 0
		if l.maxSequence() >= 15 {
			seq = most((n.seq+1)&15, 1)
		}
	}
	if by := l.begin(tick) - now; by > n.maxAhead {
		return ids, ahead, by - n.maxAhead
	}
	if tick > l.maxTick {
		return ids, full, 0
	}
	if l.begin(tick+1) > n.lease.LeasedUntil {
		return ids, over, 0
	}
	count = least(count, l.maxSequence()-seq+1)
	for i := int64(0); i < count; i++ {
		ids = append(ids, tick<<l.shift[fieldTimestamp]|n.nodeBits|(seq+i)<<l.shift[fieldSequence])
	}
	n.tick, n.seq, n.issued = tick, seq+count-1, true
	return ids, issued, 0
}

// attempt appends ids until there are count.  It returns 0, or how long to wait at most; or an error if that is of no use.
func (n *node) attempt(ids []int64, count int, remaining int64) ([]int64, int64, error) {
	var out outcome
	var need int64
	for len(ids) < count && out == issued {
		ids, out, need = n.take(int64(count-len(ids)), ids)
	}
	if out == issued {
		return ids, 0, nil
	}
	if n.closing {
		return nil, 0, &Error{Reason: Closed, message: "this Snowflake is closed\nHint: Close it after the last id."}
	}
	now := n.phase()
	if out == ahead && need <= remaining {
		return ids, need, nil
	}
	n.ask()
	switch {
	case out == full:
		return nil, 0, n.fieldFull()
	case out == ahead:
		// then another number is taken
		if remaining <= 0 || need <= most(n.maxWait, leastMove) || now != ready {
			return nil, 0, n.tooFarAhead(need)
		}
	case now == refused && n.refusedUntil-monotonic() > remaining:
		return nil, 0, n.refusal()
	case remaining <= 0:
		return nil, 0, n.gaveUp(out, now)
	}
	return ids, remaining, nil
}

// ask says that an id is wanted: the keeper looks again.
func (n *node) ask() {
	n.wantedAt = monotonic()
	// a renewal that hangs keeps nobody from another number
	if n.renewing && n.isOpen() && n.mustMove(n.clock(), n.wantedAt) {
		n.giveUp()
	}
	n.wake()
}

func (n *node) wake() {
	select {
	case n.event <- struct{}{}:
	default:
	}
}

func (n *node) giveUp() {
	if n.givenUp != nil {
		close(n.givenUp)
		n.givenUp = nil
	}
}

func (n *node) tellChange() {
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *node) phase() phase {
	over := n.lease == nil || n.lease.LeasedUntil <= n.clock()
	switch p := n.problem; {
	case n.isOpen() && !(over && p != nil && p.refused):
		if p == nil {
			return ready
		}
		return retrying
	case p == nil:
		return starting
	case p.refused || p.lasting:
		return refused
	}
	return retrying
}

func (n *node) refusal() error {
	reason, what := GaveUp, "could not get a node number from the registry"
	if n.problem.refused || n.problem.lasting {
		reason = Refused
		// what it is called: nothing depends on it
		if n.problem.sqlState == "53400" {
			reason = NoNumberFree
		}
	}
	if n.isOpen() {
		what = fmt.Sprintf("could not extend the lease of node number %d", n.lease.NodeNumber)
	}
	return &Error{reason, what + ": " + n.problem.message, n.problem.cause}
}

func (n *node) gaveUp(out outcome, now phase) error {
	if n.problem != nil && (now == retrying || now == refused) {
		return n.refusal()
	}
	what := "the lease to be extended"
	if out == sealed {
		what = "a node number"
	}
	return &Error{Reason: GaveUp, message: fmt.Sprintf("gave up waiting for %s\nDetail: MaxWait is %s.\n"+
		"Hint: Try again, or raise MaxWait.  See whether the registry's database answers.", what, seconds(n.maxWait))}
}

func (n *node) fieldFull() error {
	return &Error{Reason: FieldFull, message: fmt.Sprintf("the timestamp field of layout \"%s\" is full\nDetail: Its last tick ends at"+
		" %s.\nHint: Correct the clock if it is ahead; else choose a layout with a later end.", n.layout,
		show(n.layout.begin(n.layout.maxTick+1)))}
}

func (n *node) tooFarAhead(need int64) error {
	return &Error{Reason: TooFarAhead, message: fmt.Sprintf("the next id would be %s ahead of the clock\nDetail: MaxAhead allows %s;"+
		" the clock is there in %s, MaxWait is %s.\nHint: If the clock was set back, ids go on when it has caught up.  If too many"+
		" ids are needed, choose a layout with more sequence bits.", seconds(need+n.maxAhead), seconds(n.maxAhead), seconds(need),
		seconds(n.maxWait))}
}

//
// The lease.  All this is called with the mutex, by the keeper and, for the end, by who closes.
//

// open makes the first id that of the first tick that begins at or after startsAt.
func (n *node) open(granted *lease) {
	n.lease = granted
	n.nodeBits = n.layout.nodeBits(granted.NodeNumber)
	n.tick = most(floorDiv(granted.startsAt-n.layout.epoch+n.layout.tick-1, n.layout.tick), 0) - 1
	n.seq = n.layout.maxSequence()
	n.issued = false
}

// seal: from then on no id is issued, and the end of the lease's ids is known.
func (n *node) seal() {
	if !n.isOpen() {
		return
	}
	end := n.lease.startsAt
	if n.issued {
		end = n.layout.begin(n.tick + 1)
		n.knownUntil = later(n.knownUntil, &end)
		n.numberEnds[n.lease.NodeNumber] = end
		if len(n.numberEnds) > endedNumbers {
			first := n.lease.NodeNumber
			for number, at := range n.numberEnds {
				if at < n.numberEnds[first] {
					first = number
				}
			}
			delete(n.numberEnds, first)
		}
	}
	n.lease.IdsEndAt = &end
}

// decide says what is due: a call, as its name and what it says; or how long to wait; or that it is over.
func (n *node) decide() (name string, req *request, wait int64) {
	now, at := n.clock(), monotonic()
	if n.closing {
		n.seal()
		if n.lease == nil || n.released {
			return "", nil, -1
		}
		n.released = true
		return "release", n.request(now, 0), 0
	}
	if n.isOpen() && n.mustMove(now, at) {
		n.movedAt = at
		n.seal()
	}
	if !n.isOpen() {
		if n.retryAt > at {
			return "", nil, n.retryAt - at
		}
		if now < n.layout.epoch {
			n.failed(&problem{message: "the first tick of the layout begins at " + show(n.layout.epoch) + ", which is to come." +
				"  Hint: Correct the clock if it is behind; else choose an earlier epoch.", sqlState: "55000", lasting: true},
				spread(retry), at)
			n.tellChange()
			return "", nil, retry
		}
		req = n.request(now, n.firstWindow())
		req.acquisition = &acquisition{Kind: "program", Name: n.name, HostName: n.hostName, LaunchedAt: n.launchedAt,
			LastNumber: n.layout.lastNumber(), Uses: n.uses, IdsEndAt: n.knownUntil, StartsAt: n.floor}
		return "acquire", req, 0
	}
	if !n.renewalIsDue(now, at) {
		// the clock was set back: what has failed is not due any more
		n.problem = nil
		return "", nil, most(n.lease.LeasedUntil-now-n.renewLeft(), second/10)
	}
	if n.retryAt > at {
		return "", nil, n.retryAt - at
	}
	return "renew", n.request(now, n.nextWindow()), 0
}

// mustMove says whether the clock is so far behind the last id that nobody gets one, and another number helps.
func (n *node) mustMove(now, at int64) bool {
	tick, _ := n.next()
	behind := n.layout.begin(tick) - n.maxAhead - now
	return at-n.wantedAt < wanted && at-n.movedAt >= moveAgain && behind > most(n.maxWait, leastMove) &&
		(n.issued || behind > latestStart+second)
}

func (n *node) firstWindow() int64 {
	if n.overloads > 0 {
		return n.fullWindow
	}
	return least(n.fullWindow, firstWindow)
}

func (n *node) nextWindow() int64 {
	return most(least(2*n.lease.window, n.fullWindow), n.firstWindow())
}

func (n *node) renewLeft() int64 { return n.lease.window - n.lease.renewAfter }

func (n *node) renewalIsDue(now, at int64) bool {
	left := n.lease.LeasedUntil - now
	// the registry counts the window as this does
	if most(now, n.lease.startsAt)+n.nextWindow() <= n.lease.LeasedUntil+n.layout.tick {
		return false
	}
	return at-n.wantedAt < wanted && left <= n.maxAhead+2*n.layout.tick || left <= n.renewLeft()
}

// request makes a call's JSON; window 0: of a release.
func (n *node) request(now, window int64) *request {
	// used up before it is sent, whatever becomes of the call
	n.callNumber++
	req := &request{Protocol: protocol, Start: n.start, Call: n.callNumber, Layout: n.layout.String()}
	if n.lease != nil {
		named := n.lease.namedLease
		req.Lease = &named
	}
	if window > 0 {
		ahead := n.maxAhead + n.layout.tick
		req.Clock, req.MaxAhead, req.Window = &now, &ahead, &window
	}
	return req
}

// result takes the result of the call: an answer, or why there is none.
func (n *node) result(name string, req *request, ans *answer, failure *callError) {
	at := monotonic()
	switch {
	case failure != nil:
		n.callFailed(failure, at)
	default:
		n.lookAt(req, ans)
		switch {
		case ans.Answer == "refused":
			n.refused(ans, at)
		case name == "acquire":
			n.granted(req, ans, at)
		case name == "renew" && ans.Answer == "no":
			// what it refused before is not so now
			n.succeeded()
			n.seal()
		case name == "renew" && n.isOpen():
			n.renewed(req, ans, at)
		}
	}
	if n.closing {
		// nobody gets an id of what came just now
		n.seal()
	}
	message := ""
	if n.problem != nil {
		message = n.problem.message
	}
	n.tell("call", message, "ready again")
	n.tellChange()
}

func (n *node) succeeded() { n.problem, n.overloads, n.retryAt = nil, 0, 0 }

func (n *node) failed(what *problem, wait, at int64) {
	n.problem = what
	if n.isOpen() {
		// while ids can go on, unless so little is left that this would be no wait
		if left := n.lease.LeasedUntil - n.clock(); left > 0 {
			wait = least(wait, most(left/leftDivisor, spread(retry)))
		}
	}
	n.retryAt, n.refusedUntil = at+wait, at
	if what.lasting {
		n.refusedUntil = forever
	}
}

func (n *node) callFailed(failure *callError, at int64) {
	if failure.overloaded {
		n.overloads++
	} else {
		n.overloads = 0
	}
	wait := int64(longestRetry)
	if n.overloads < 16 {
		wait = least(retry<<n.overloads, longestRetry)
	}
	n.failed(&problem{message: failure.message, sqlState: failure.sqlState, cause: failure.cause, lasting: lasting[failure.sqlState]},
		spread(wait), at)
}

// timeoutOf is how long the answer of a call is waited for.
func (n *node) timeoutOf(name string) time.Duration {
	if n.overloads == 0 || name == "release" {
		return callTimeout
	}
	longest := n.fullWindow / 2
	// a third of what is left, while ids can go on; else half of the window: a lease that comes later is soon over
	if n.isOpen() {
		if left := n.lease.LeasedUntil - n.clock(); left > 0 {
			longest = left / leftDivisor
		}
	}
	return time.Duration(least(most(longest, callTimeout.Microseconds()), patience.Microseconds())) * time.Microsecond
}

func (n *node) refused(ans *answer, at int64) {
	message := printable(*ans.Message)
	if ans.Detail != "" {
		message += ".  Detail: " + printable(ans.Detail)
	}
	if ans.Hint != "" {
		message += "  Hint: " + printable(ans.Hint)
	}
	n.overloads = 0
	n.failed(&problem{message: message, sqlState: ans.SQLState, refused: true, lasting: *ans.Wait >= longestRefusal},
		least(most(spread(*ans.Wait), leastRefusal), longestRefusal), at)
	n.refusedUntil = most(n.refusedUntil, at+*ans.Wait)
}

func (n *node) isAkin(ans *answer) bool {
	return n.lease != nil && n.lease.Incarnation == ans.Incarnation && n.lease.Generation == *ans.Generation
}

// notAskedFor says why no registry grants such a lease to this call; "": one can.
func (n *node) notAskedFor(req *request, ans *answer) string {
	number, startsAt, until := *ans.NodeNumber, *ans.StartsAt, *ans.LeasedUntil
	before := n.floor
	if end, known := n.numberEnds[number]; known {
		before = later(before, &end)
	}
	if !n.isAkin(ans) {
		before = later(before, n.knownUntil)
	}
	latest := *req.Clock + *req.MaxAhead + latestStart
	switch {
	case number > n.layout.lastNumber():
		return fmt.Sprintf("node number %d, asked for was one from 0 to %d", number, n.layout.lastNumber())
	case startsAt > until:
		return fmt.Sprintf("it starts at %s and ends at %s", show(startsAt), show(until))
	case until <= *req.Clock:
		// each of them would be the reason for a next call, at once
		return fmt.Sprintf("it starts at %s and had ended at %s, before it was asked for", show(startsAt), show(until))
	case before != nil && startsAt < *before:
		return fmt.Sprintf("it starts at %s, ids of this start end at %s", show(startsAt), show(*before))
	case startsAt > latest:
		return fmt.Sprintf("it starts at %s, asked for was one that starts at or before %s", show(startsAt), show(latest))
	}
	return ""
}

func (n *node) granted(req *request, ans *answer, at int64) {
	if why := n.notAskedFor(req, ans); why != "" {
		n.callFailed(failed("55000", nil, "the registry granted a lease that was not asked for: %s.  See which server answers there,"+
			" and whether somebody has changed the functions in its schema snowflake.", why), at)
		return
	}
	n.succeeded()
	// the registry has heard of the ids before, and counts them for this lease only
	if n.lease != nil && !n.isAkin(ans) {
		n.floor = later(n.floor, n.knownUntil)
	}
	n.uses = &ans.Incarnation
	granted := &lease{startsAt: *ans.StartsAt, namedLease: namedLease{Token: ans.Token, NodeNumber: *ans.NodeNumber, GrantedBy: req.Call,
		Incarnation: ans.Incarnation, Generation: *ans.Generation,
		LeasedUntil: least(*ans.LeasedUntil, askedUntil(req, *ans.StartsAt))}}
	n.noteWindow(granted, req)
	n.open(granted)
}

func (n *node) renewed(req *request, ans *answer, at int64) {
	asked := askedUntil(req, n.lease.startsAt)
	n.succeeded()
	// it gave less than was asked for: not again at once
	if *ans.LeasedUntil < asked {
		n.retryAt = at + spread(retry)
	}
	// more is no failure: the answer to another renewal was lost
	n.lease.LeasedUntil = most(n.lease.LeasedUntil, least(*ans.LeasedUntil, asked))
	n.noteWindow(n.lease, req)
}

func askedUntil(req *request, startsAt int64) int64 { return most(*req.Clock, startsAt) + *req.Window }

// noteWindow: the lease is renewed by what it has got, which the registry's limit for ends may have cut.
func (n *node) noteWindow(of *lease, req *request) {
	got := of.LeasedUntil - most(*req.Clock, of.startsAt)
	of.window = most(least(got, *req.Window), 0)
	of.renewAfter = spread(of.window / renewDivisor)
	if _, said := n.logged["cut"]; of.window < *req.Window && !said {
		n.tell("cut", fmt.Sprintf("a lease of %s was asked for, and the registry has cut it to %s, by its limit for ends.  Hint: Set"+
			" LeaseDuration to less than that limit, or raise it: see snowflake.limit_leases() in doc/reference.md.  If the clock of"+
			" this program is ahead, correct it.", seconds(*req.Window), seconds(of.window)), "")
	}
}

//
// What people are told.  Nothing is decided by it.
//

func (n *node) lookAt(req *request, ans *answer) {
	if ans.Incarnation != n.answeredBy {
		n.answeredBy, n.newest = ans.Incarnation, 0
	}
	n.newest = most(n.newest, *ans.Generation)
	message := ""
	if *ans.Generation < n.newest {
		message = fmt.Sprintf("the registry has answered as of generation %d, though it was in generation %d before: a former primary"+
			" of it was started again.  Hint: Stop that server: see \"Failover\" in doc/operations.md.", *ans.Generation, n.newest)
	}
	n.tell("generation", message, "the registry answers as of its newest generation again")
	differ := *ans.Clock - n.clock()
	if req.Clock != nil {
		differ = most(differ, *req.Clock-*ans.Clock)
	}
	message = ""
	if differ > n.fullWindow {
		message = "the clocks of this program and of the registry differ by " + seconds(differ) +
			".  Hint: Correct the one that is wrong."
	}
	n.tell("clock", message, "the clocks agree again")
	if ans.Answer == "no" && *ans.Reason == "rolled back" && n.lease != nil {
		n.tell("rolled back", fmt.Sprintf("the registry does not know that node number %d is leased to this program from %s until %s:"+
			" its storage was rolled back, or another server is a copy of it.  Hint: See \"Failover\" in doc/operations.md.",
			n.lease.NodeNumber, show(n.lease.startsAt), show(n.lease.LeasedUntil)), "")
	}
}

// tell logs the first time, then at most once a minute, and when it is over.
func (n *node) tell(what, message, over string) {
	at := monotonic()
	last, said := n.logged[what]
	switch {
	case message != "" && (!said || at-last >= logAgain):
		n.logged[what] = at
		n.write(message)
	case message == "" && over != "" && said:
		delete(n.logged, what)
		n.write(over)
	}
}

// write leaves a line out if the log hangs.
func (n *node) write(line string) {
	select {
	case n.lines <- line:
	default:
	}
}

// print is a goroutine of its own: a log can block, and close the node.
func (n *node) print() {
	defer close(n.printed)
	for line := range n.lines {
		n.log("snowflake " + n.name + ": " + line)
	}
}

// inLog says whether a log has called, in the goroutine of print: if it waited for its last line, it would wait for itself.
func inLog() bool {
	callers := make([]uintptr, 1000)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for more := true; more; {
		var frame runtime.Frame
		if frame, more = frames.Next(); strings.HasSuffix(frame.Function, ".(*node).print") {
			return true
		}
	}
	return false
}

// keep makes the calls that are due, as long as the node is wanted.
func (n *node) keep() {
	defer close(n.lines)
	defer close(n.ended)
	for {
		n.mu.Lock()
		name, req, wait := n.decide()
		timeout := n.timeoutOf(name)
		givenUp := make(chan struct{})
		n.givenUp, n.renewing = givenUp, name == "renew"
		n.mu.Unlock()
		switch {
		case wait < 0:
			return
		case req == nil:
			timer := time.NewTimer(time.Duration(least(wait, longestSleep)) * time.Microsecond)
			select {
			case <-n.event:
			case <-timer.C:
			}
			timer.Stop()
		default:
			ans, failure := makeCall(n.dsn, name, req, timeout, givenUp)
			n.mu.Lock()
			if n.renewing = false; failure != givenUpOn {
				n.result(name, req, ans, failure)
			}
			n.mu.Unlock()
		}
	}
}

// end begins the end: no id is issued any more.
func (n *node) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closing {
		return
	}
	n.closing = true
	n.seal()
	n.giveUp()
	n.wake()
	n.tellChange()
}

//
// What programs use
//

// An Option is what can be set.
type Option func(*options)

type options struct {
	layout, hostName                 string
	leaseDuration, maxAhead, maxWait time.Duration
	clock                            func() int64
	log                              func(string)
}

// WithLayout sets the layout of the registry's nodes, as snowflake.layout has it on servers; default twitter.
func WithLayout(definition string) Option { return func(o *options) { o.layout = definition } }

// WithHostName sets where this program runs, for the registry's view; default what the machine says.
func WithHostName(name string) Option { return func(o *options) { o.hostName = name } }

// LeaseDuration is how long ids go on while the registry cannot be asked, at most; default 2 minutes.
func LeaseDuration(span time.Duration) Option { return func(o *options) { o.leaseDuration = span } }

// MaxAhead is how far the time of an id may be ahead of the clock; default 1 s.
func MaxAhead(span time.Duration) Option { return func(o *options) { o.maxAhead = span } }

// MaxWait is how long one call waits, at most; default 5 s.
func MaxWait(span time.Duration) Option { return func(o *options) { o.maxWait = span } }

// WithClock sets the clock, in microseconds since 1970-01-01 UTC, for tests.
func WithClock(clock func() int64) Option { return func(o *options) { o.clock = clock } }

// WithLog sets what is called with each line of the log; default log.Print.
func WithLog(print func(string)) Option { return func(o *options) { o.log = print } }

// A Snowflake makes ids.  One for a process is enough: any goroutine may use it.
type Snowflake struct{ node *node }

// isReadable asks the driver, whose words can show the password; it panics if it does not like the environment.
func isReadable(registry string) (readable bool) {
	defer func() {
		if recover() != nil {
			readable = false
		}
	}()
	_, err := pq.NewConnector(registry)
	return err == nil
}

// New begins.  The first lease is taken in the background: Next waits for it.
//
// registry is a connection string of the registry's database, as lib/pq has it.  name is what the registry's view shows;
// several programs can have the same.
func New(registry, name string, set ...Option) (*Snowflake, error) {
	o := options{layout: "twitter", leaseDuration: 2 * time.Minute, maxAhead: time.Second, maxWait: 5 * time.Second,
		clock: func() int64 { return time.Now().UnixMicro() }, log: func(line string) { log.Print(line) }}
	if host, err := os.Hostname(); err == nil && isText(host) {
		o.hostName = host
	} else {
		o.hostName = "unknown"
	}
	for _, option := range set {
		option(&o)
	}
	// lib/pq would take an empty one for the database that the environment names
	if strings.TrimSpace(registry) == "" {
		return nil, invalid("there is no connection string of the registry\nHint: Give one of the registry's database.")
	}
	if !isReadable(registry) {
		return nil, invalid("the connection string of the registry cannot be read\nHint: Write it as lib/pq reads it, such as" +
			" \"host=registry1 dbname=postgres user=orders_api\", or as a URL, and unset what lib/pq does not read of libpq's" +
			" environment, such as PGSERVICE.")
	}
	layout, err := ParseLayout(o.layout)
	if err != nil {
		return nil, err
	}
	if !layout.isIssuable() {
		return nil, invalid("the layout \"%s\" is for parsing only\nDetail: Ids are issued with a worker field and a tick of at most 1s.\n"+
			"Hint: Take the layout of the registry's other nodes.", o.layout)
	}
	for what, text := range map[string]string{"name": name, "host name": o.hostName} {
		if !isText(text) {
			return nil, invalid("invalid %s: \"%s\"\nHint: It has 1 to 255 bytes of printable characters.", what, printable(text))
		}
	}
	for _, span := range []struct {
		what                   string
		value, least, greatest time.Duration
	}{{"LeaseDuration", o.leaseDuration, time.Second, 24 * time.Hour}, {"MaxAhead", o.maxAhead, 0, time.Hour},
		{"MaxWait", o.maxWait, 0, 24 * time.Hour}} {
		if span.value < span.least || span.value > span.greatest {
			return nil, invalid("%s is %s\nHint: It is from %s to %s.", span.what, span.value, span.least, span.greatest)
		}
	}
	n := &node{dsn: registry, name: name, hostName: o.hostName, layout: layout, maxAhead: o.maxAhead.Microseconds(),
		maxWait: o.maxWait.Microseconds(), clock: o.clock, log: o.log, start: newUUID(), launchedAt: o.clock(),
		lines: make(chan string, mostLines), printed: make(chan struct{}), event: make(chan struct{}, 1), ended: make(chan struct{}),
		changed: make(chan struct{}), numberEnds: map[int64]int64{}, logged: map[string]int64{}, wantedAt: -wanted, movedAt: -moveAgain}
	n.fullWindow = most(o.leaseDuration.Microseconds(), n.maxAhead+layout.tick+reserve)
	s := &Snowflake{n}
	// one that nobody has any more, and that nobody has closed, gives its number back
	runtime.SetFinalizer(s, func(s *Snowflake) { go s.node.end() })
	go n.print()
	go n.keep()
	return s, nil
}

func invalid(format string, values ...interface{}) error {
	return &Error{Reason: Invalid, message: fmt.Sprintf(format, values...)}
}

func isText(text string) bool {
	return len(text) >= 1 && len(text) <= 255 && !notPrintable.MatchString(text)
}

// Next returns the next id.  It waits for at most MaxWait, and until ctx is done.
func (s *Snowflake) Next(ctx context.Context) (int64, error) {
	var one [1]int64
	ids, err := s.next(ctx, one[:0], 1)
	if err != nil {
		return 0, err
	}
	return ids[0], nil
}

// NextN returns so many ids, 1 to MaxBatch, in order.
func (s *Snowflake) NextN(ctx context.Context, count int) ([]int64, error) {
	n := s.node
	if count < 1 || count > MaxBatch {
		return nil, invalid("batch of %d ids is out of range\nHint: Ask for 1 to %d ids at a time.", count, MaxBatch)
	}
	// what could not be issued even if nothing else were
	room := most(least((n.maxAhead+n.maxWait)/n.layout.tick, MaxBatch), 1) * least(n.layout.maxSequence()+1, MaxBatch)
	if int64(count) > room {
		return nil, invalid("batch of %d ids is too large for layout \"%s\"\nDetail: Within MaxAhead and MaxWait it holds at most %d"+
			" ids.\nHint: Ask for at most %d ids at a time.", count, n.layout, room, room)
	}
	return s.next(ctx, make([]int64, 0, count), count)
}

func (s *Snowflake) next(ctx context.Context, ids []int64, count int) ([]int64, error) {
	n := s.node
	// here, since without the mutex a panic, as of a nil ctx, could not be recovered from
	done := ctx.Done()
	n.mu.Lock()
	defer n.mu.Unlock()
	ids, wait, err := n.attempt(ids, count, n.maxWait)
	if wait == 0 || err != nil {
		return ids, err
	}
	for deadline := monotonic() + n.maxWait; wait > 0 && err == nil; {
		changed := n.changed
		n.mu.Unlock()
		// not below 1 ms: that would be a busy loop
		timer := time.NewTimer(time.Duration(most(least(wait, askAgain), 1000)) * time.Microsecond)
		select {
		case <-changed:
		case <-timer.C:
		case <-done:
			err = &Error{Interrupted, "interrupted while waiting for an id: " + ctx.Err().Error(), ctx.Err()}
		}
		timer.Stop()
		n.mu.Lock()
		if err == nil {
			ids, wait, err = n.attempt(ids, count, deadline-monotonic())
		}
	}
	runtime.KeepAlive(s)
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// Layout is that of the ids.
func (s *Snowflake) Layout() *Layout { return s.node.layout }

// Parse returns the parts of an id of this layout.
func (s *Snowflake) Parse(id int64) (Parts, error) { return s.node.layout.Parse(id) }

// Time returns when the tick of an id begins.
func (s *Snowflake) Time(id int64) (time.Time, error) {
	parts, err := s.node.layout.Parse(id)
	return parts.Timestamp, err
}

// A State is what a node has and does at one moment, for metrics and logs.
type State struct {
	Phase       string    // starting, ready, retrying or refused
	NodeNumber  int64     // of the newest lease; -1 before the first
	LeasedUntil time.Time // zero before the first
	Problem     string    // what the last call failed with, or was refused with
}

// State returns what the node has and does now.  It asks nobody.
func (s *Snowflake) State() State {
	n := s.node
	n.mu.Lock()
	defer n.mu.Unlock()
	state := State{Phase: string(n.phase()), NodeNumber: -1}
	if n.lease != nil {
		state.NodeNumber, state.LeasedUntil = n.lease.NodeNumber, time.UnixMicro(n.lease.LeasedUntil).UTC()
	}
	if n.problem != nil {
		state.Problem = n.problem.message
	}
	return state
}

// Close ends the lease where its ids end, so that the number is free at once, and waits for that, and for the log, for some
// seconds.  When it returns, no id is issued any more.  Safe to call twice.
func (s *Snowflake) Close() error {
	s.node.end()
	timer := time.NewTimer(callTimeout + time.Second)
	defer timer.Stop()
	done := s.node.printed
	if inLog() {
		done = s.node.ended
	}
	select {
	case <-done:
	case <-timer.C:
	}
	return nil
}
