package snowflake

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/lib/pq"
)

const (
	// of getting a connection, and of the call then
	loginTimeout  = 15 * time.Second
	callTimeout   = 5 * time.Second
	cancelTimeout = time.Second

	protocol      = 1
	longestAnswer = 65_536
	// of all that comes in a connection
	longestInput = 1 << 20
	longestText  = 1_000
	// no answer keeps a node away for longer, in microseconds
	longestRefusal = 10_000_000
	// of a call, if the one before has found the registry overloaded: if all give up on calls that it is busy with, it
	// works for nobody
	patience = 60 * time.Second
	// the years 1 to 9999, in microseconds since 1970
	firstTime, endTime = -62_135_596_800_000_000, 253_402_300_800_000_000
	// what raises the warning that a commit is perhaps not on a synchronous standby: it has no SQLSTATE of its own
	syncRepRoutine = "SyncRepWaitForLSN"
)

var (
	uuidPattern     = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	statePattern    = regexp.MustCompile(`^[0-9A-Z]{5}$`)
	noErrorPattern  = regexp.MustCompile(`^0[0-2]`)
	overloadPattern = regexp.MustCompile(`^(08|40|53|57|55P03)`)
)

// A callError is why there is no answer.  overloaded: the registry has no time, no connection or no server for a call yet.
type callError struct {
	message, sqlState string
	overloaded        bool
	cause             error
}

// givenUpOn: nobody waits for the answer any more.
var givenUpOn = failed("57014", nil, "the call was given up on")

func (e *callError) Error() string { return e.message }

func failed(sqlState string, cause error, format string, values ...interface{}) *callError {
	return &callError{printable(fmt.Sprintf(format, values...)), sqlState, overloadPattern.MatchString(sqlState), cause}
}

// callErrorOf is what the driver's error means.
func callErrorOf(err error) *callError {
	var own *callError
	var server *pq.Error
	var network *net.OpError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &server):
		return failed(string(server.Code), err, "%s", server.Message)
	case errors.As(err, &network) && network.Op == "dial":
		// nobody listens, or the network is away: to ask again costs the registry nothing
		return &callError{printable(err.Error()), "08001", false, err}
	}
	return failed("08006", err, "%s", err)
}

// printable makes one line of at most longestText bytes, without characters that control a terminal.
func printable(text string) string {
	line := strings.Join(strings.FieldsFunc(text, func(c rune) bool { return c == ' ' || !unicode.IsPrint(c) }), " ")
	if len(line) > longestText {
		return strings.ToValidUTF8(line[:longestText], "") + " ..."
	}
	return line
}

// A request is a call's JSON.
type request struct {
	Protocol int         `json:"protocol"`
	Start    string      `json:"start"`
	Call     int64       `json:"call"`
	Layout   string      `json:"layout"`
	Lease    *namedLease `json:"lease"`
	// of acquire_lease and renew_lease
	Clock    *int64 `json:"clock,omitempty"`
	MaxAhead *int64 `json:"max_ahead,omitempty"`
	Window   *int64 `json:"window,omitempty"`
	*acquisition
}

// A namedLease is the newest lease that was opened.
type namedLease struct {
	Token       string `json:"token"`
	NodeNumber  int64  `json:"node_number"`
	GrantedBy   int64  `json:"granted_by"`
	Incarnation string `json:"incarnation"`
	Generation  int64  `json:"generation"`
	LeasedUntil int64  `json:"leased_until"`
	IdsEndAt    *int64 `json:"ids_end_at,omitempty"`
}

// An acquisition is what only acquire_lease says.
type acquisition struct {
	Kind        string  `json:"kind"`
	Name        string  `json:"name"`
	HostName    string  `json:"host_name"`
	LaunchedAt  int64   `json:"launched_at"`
	FirstNumber int64   `json:"first_number"`
	LastNumber  int64   `json:"last_number"`
	Fixed       bool    `json:"fixed"`
	Uses        *string `json:"uses"`
	IdsEndAt    *int64  `json:"ids_end_at"`
	StartsAt    *int64  `json:"starts_at"`
}

// An answer has pointers where a value can be missing.
type answer struct {
	Protocol    *int64  `json:"protocol"`
	Answer      string  `json:"answer"`
	Incarnation string  `json:"incarnation"`
	Generation  *int64  `json:"generation"`
	Clock       *int64  `json:"clock"`
	Token       string  `json:"token"`
	NodeNumber  *int64  `json:"node_number"`
	StartsAt    *int64  `json:"starts_at"`
	LeasedUntil *int64  `json:"leased_until"`
	Reason      *string `json:"reason"`
	SQLState    string  `json:"sqlstate"`
	Message     *string `json:"message"`
	Detail      string  `json:"detail"`
	Hint        string  `json:"hint"`
	Wait        *int64  `json:"wait"`
}

// A dialer remembers its connections: the driver waits for a server that hangs, whatever its context says, unless its
// socket is closed.
type dialer struct {
	net.Dialer
	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, conn)
	if d.closed {
		conn.Close()
	}
	return &boundedConn{conn, longestInput}, nil
}

// A boundedConn fails when it has read too much.  One goroutine reads.
type boundedConn struct {
	net.Conn
	left int
}

func (c *boundedConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		c.Close()
		return 0, failed("08P01", nil, "the registry has sent more than %d bytes", longestInput)
	}
	n, err := c.Conn.Read(b)
	c.left -= n
	return n, err
}

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d *dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, conn := range d.conns {
		conn.Close()
	}
}

// makeCall makes the call name ("acquire", ...), as doc/protocol.md has it: one connection, and one statement that commits
// itself.  It has failed if anything but an answer comes: an error, the warning that the commit is perhaps not on a
// synchronous standby, or nothing in time: once there is a connection, it waits for that timeout.  It ends early when
// givenUp is closed.
func makeCall(dsn, name string, req *request, timeout time.Duration, givenUp <-chan struct{}) (*answer, *callError) {
	type result struct {
		text string
		err  error
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dial := &dialer{}
	defer dial.close()
	connected := make(chan struct{})
	done := make(chan result, 1)
	go func() {
		// the driver panics if what answers there is no server of PostgreSQL
		defer func() {
			if what := recover(); what != nil {
				done <- result{err: failed("08P01", nil, "what the registry has sent cannot be read: %v", what)}
			}
		}()
		text, err := ask(ctx, dial, dsn, name, req, connected)
		done <- result{text, err}
	}()

	login := loginTimeout
	if name == "release" {
		// who stops does not wait for a login
		login = callTimeout
	}
	timer := time.NewTimer(login)
	defer func() { timer.Stop() }()
	late := failed("08006", nil, "there was no connection to the registry within %.0f s", login.Seconds())
	for {
		select {
		case got := <-done:
			if got.err != nil {
				return nil, callErrorOf(got.err)
			}
			ans, err := read(name, got.text)
			if err != nil {
				return nil, failed("08P01", err, "the registry gave an answer that cannot be read: %s", err)
			}
			return ans, nil
		case <-connected:
			connected = nil
			timer.Stop()
			timer = time.NewTimer(timeout)
			late = failed("08006", nil, "the registry did not answer within %.0f s", timeout.Seconds())
			continue
		case <-givenUp:
			late = givenUpOn
		case <-timer.C:
		}
		// The driver tells the server, which would go on with a call whose connection is closed, and others would wait for
		// it.  What comes now is late: it is not read.
		cancel()
		select {
		case <-done:
		case <-time.After(cancelTimeout):
		}
		return nil, late
	}
}

// ask returns the answer's text, once it is committed.
func ask(ctx context.Context, dial *dialer, dsn, name string, req *request, connected chan<- struct{}) (string, error) {
	var warning *pq.Error
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		return "", err
	}
	connector.Dialer(dial)
	db := sql.OpenDB(pq.ConnectorWithNoticeHandler(connector, func(notice *pq.Error) {
		// 00000 is a notice; if it does not say which routine it is of, each warning counts
		if !strings.HasPrefix(string(notice.Code), "00") && (notice.Routine == "" || notice.Routine == syncRepRoutine) {
			warning = notice
		}
	}))
	defer db.Close()
	// a call of the connection, and not of db, which would send it again if the connection breaks
	conn, err := db.Conn(ctx)
	if err != nil {
		return "", err
	}
	close(connected)
	text, err := json.Marshal(req)
	if err != nil {
		return "", err
	}
	var got sql.NullString
	// one simple query: a pooler in transaction mode can give the parts of an extended one to several servers
	err = conn.QueryRowContext(ctx, "SELECT snowflake."+name+"_lease("+pq.QuoteLiteral(string(text))+
		"::pg_catalog.jsonb)::pg_catalog.text").Scan(&got)
	// not deferred: after a panic of the driver it would wait for ever
	conn.Close()
	switch {
	case err == nil && warning != nil:
		return "", failed("08007", warning, "the call was committed with a warning: %s", warning.Message)
	case errors.Is(err, sql.ErrNoRows), err == nil && !got.Valid:
		return "", failed("08P01", err, "the registry gave no answer")
	}
	return got.String, err
}

// read checks an answer.  What comes from there is not trusted: it counts only if each value of it is there and possible.
func read(name, text string) (*answer, error) {
	if len(text) > longestAnswer {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(text), longestAnswer)
	}
	var got *answer
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		return nil, err
	}
	if got == nil {
		return nil, errors.New("it is not an object")
	}
	var err error
	number := func(key string, value *int64, least, greatest int64) {
		if err == nil && (value == nil || *value < least || *value > greatest) {
			err = fmt.Errorf("%s is not an integer from %d to %d", key, least, greatest)
		}
	}
	holds := func(key string, is bool, what string) {
		if err == nil && !is {
			err = fmt.Errorf("%s is not %s", key, what)
		}
	}
	number("protocol", got.Protocol, protocol, protocol)
	holds("incarnation", uuidPattern.MatchString(got.Incarnation), "a UUID")
	number("generation", got.Generation, 1, 1<<31-1)
	number("clock", got.Clock, firstTime, endTime-1)
	switch {
	case got.Answer == "refused":
		number("wait", got.Wait, 0, longestRefusal)
		holds("sqlstate", statePattern.MatchString(got.SQLState) && !noErrorPattern.MatchString(got.SQLState), "that of an error")
		holds("message", got.Message != nil, "a text")
	case got.Answer == "no" && name != "acquire":
		holds("reason", got.Reason != nil, "a text")
	case got.Answer == "yes" && name != "release":
		number("leased_until", got.LeasedUntil, firstTime, endTime-1)
		if name == "acquire" {
			holds("token", uuidPattern.MatchString(got.Token), "a UUID")
			number("node_number", got.NodeNumber, 0, 1<<63-1)
			number("starts_at", got.StartsAt, firstTime, endTime-1)
		}
	default:
		holds("answer", got.Answer == "yes", "one that there is")
	}
	return got, err
}
