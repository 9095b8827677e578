package snowflake

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Layout is the bit layout of an id: which fields it has, their widths and order, the length of a tick and the epoch.
// Its grammar, its presets and the texts of its errors are the server's (src/layout).  It never changes.
//
// Ticks count from the epoch; times are microseconds since 1970-01-01 UTC.  The fields datacenter, worker and clock, from
// high to low and wherever they stand in the id, make up one number, the node number.
type Layout struct {
	order       []int
	bits, shift [fieldCount]uint
	tick, epoch int64
	maxTick     int64
}

const (
	fieldTimestamp = iota
	fieldDatacenter
	fieldWorker
	fieldClock
	fieldSequence
	fieldCount
)

const (
	second  = 1_000_000
	maxBits = 63
	maxTick = 86_400 * second
	// where timestamptz ends, counted from 2000: the last tick of a wide timestamp ends before that
	timestamptzEnd = 9_223_371_331_200_000_000
	postgresEpoch  = 946_684_800 * second
)

var fieldNames = [fieldCount]string{"timestamp", "datacenter", "worker", "clock", "sequence"}

var presets = map[string]string{
	"twitter":        "timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z",
	"leaf":           "timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z",
	"discord":        "timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2015-01-01T00:00:00Z",
	"instagram":      "timestamp 40, worker 13, sequence 10, tick 1ms, epoch 2011-08-24T21:07:01.721Z",
	"mastodon":       "timestamp 47, sequence 16, tick 1ms, epoch 1970-01-01T00:00:00Z",
	"sonyflake":      "timestamp 39, sequence 8, worker 16, tick 10ms, epoch 2014-09-01T00:00:00Z",
	"sonyflake2":     "timestamp 39, sequence 8, worker 16, tick 10ms, epoch 2025-01-01T00:00:00Z",
	"uidgenerator":   "timestamp 29, worker 21, sequence 13, tick 1s, epoch 2016-09-20T00:00:00+08:00",
	"uidgenerator28": "timestamp 28, worker 22, sequence 13, tick 1s, epoch 2016-05-20T00:00:00+08:00",
	"uidstarter":     "timestamp 30, worker 16, sequence 7, tick 1s, epoch 2019-02-20T00:00:00+08:00",
	"liaoxuefeng":    "timestamp 32, sequence 16, worker 5, tick 1s, epoch 2000-01-01T00:00:00Z",
	"cosid":          "timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2019-12-25T00:00:00+08:00",
	"shardingsphere": "timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2016-11-01T00:00:00+08:00",
	"pgedge":         "timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2023-01-01T00:00:00Z",
	"pgedge1":        "timestamp 41, sequence 12, worker 10, tick 1ms, epoch 2023-01-01T00:00:00Z",
	"js53":           "timestamp 38, worker 7, sequence 8, tick 10ms, epoch 2024-01-01T00:00:00Z",
}

var (
	unitNames     = []string{"s", "ms", "us"}
	units         = map[string]int64{"s": second, "ms": 1000, "us": 1}
	widthPattern  = regexp.MustCompile(`^[0-9]{1,9}$`)
	tickPattern   = regexp.MustCompile(`(?i)^([0-9]{1,9}) *(us|ms|s)$`)
	epochPattern  = regexp.MustCompile(`(?i)^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(?:Z|([+-])(\d\d)(?::?(\d\d))?)$`)
	firstEpoch, _ = time.Parse(time.RFC3339, "0001-01-01T00:00:00Z")
	endEpoch      = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
)

// A refusal is why a definition is not accepted: what is wrong, and what to do.
type refusal struct{ detail, hint string }

func (r *refusal) Error() string { return r.detail }

func refuse(hint, detail string, values ...interface{}) error {
	return &refusal{fmt.Sprintf(detail, values...), hint}
}

// A reader reads one definition.
type reader struct {
	Layout
	seen       map[string]bool
	fromPreset bool
}

// ParseLayout reads a definition: the name of a preset, a preset with changes, or all parts spelled out.
func ParseLayout(definition string) (*Layout, error) {
	r := reader{seen: map[string]bool{}}
	r.tick = 1000
	err := r.read(definition)
	if err == nil {
		err = r.checkWhole(definition)
	}
	if err != nil {
		return nil, &Error{Reason: Invalid, message: fmt.Sprintf("invalid layout: \"%s\"\nDetail: %s\nHint: %s", definition, err,
			err.(*refusal).hint)}
	}
	layout, low := r.Layout, uint(0)
	for n := len(layout.order) - 1; n >= 0; n-- {
		layout.shift[layout.order[n]] = low
		low += layout.bits[layout.order[n]]
	}
	// the span can be more than 63 bits have
	span := new(big.Int).Sub(big.NewInt(timestamptzEnd-1), big.NewInt(layout.epoch-postgresEpoch))
	layout.maxTick = lowBits(layout.bits[fieldTimestamp])
	if ticks := span.Div(span, big.NewInt(layout.tick)); ticks.IsInt64() && ticks.Int64()-1 < layout.maxTick {
		layout.maxTick = ticks.Int64() - 1
	}
	return &layout, nil
}

func (r *reader) read(definition string) error {
	for n, text := range strings.Split(definition, ",") {
		part := strings.Map(func(c rune) rune {
			if c >= '\t' && c <= '\r' {
				return ' '
			}
			return c
		}, text)
		// byte by byte, as the server reads it
		bytes := []byte(strings.Trim(part, " "))
		for i, c := range bytes {
			if c < ' ' || c > '~' {
				bytes[i] = '?'
			}
		}
		part = string(bytes)
		if len(part) > 127 {
			return refuse("Separate the parts by commas, and leave out needless blanks.", "\"%s...\" is longer than 127 characters.",
				part[:127])
		}
		if err := r.readPart(part, n == 0); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) readPart(part string, isFirst bool) error {
	word, value := part, ""
	if at := strings.IndexByte(part, ' '); at >= 0 {
		word, value = part[:at], strings.TrimLeft(part[at:], " ")
	}
	name, field := strings.ToLower(word), -1
	for n, known := range fieldNames {
		if name == known {
			field = n
		}
	}
	if field >= 0 || name == "tick" || name == "epoch" {
		if r.seen[name] && field >= 0 {
			return refuse("Give each field once.", "\"%s\" repeats the field %s.", part, name)
		} else if r.seen[name] {
			return refuse("Give the "+name+" once.", "\"%s\" repeats the %s.", part, name)
		}
		r.seen[name] = true
		switch name {
		case "tick":
			return r.readTick(part, value)
		case "epoch":
			return r.readEpoch(part, value)
		}
		return r.readWidth(part, field, value)
	}
	preset, known := presets[strings.ToLower(part)]
	if !known {
		return refuse("A layout is the name of a preset (see snowflake_layouts()), or parts such as \"timestamp 41, worker 10,"+
			" sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z\".",
			"\"%s\" is neither a preset nor one of timestamp, datacenter, worker, clock, sequence, tick and epoch.", part)
	}
	if !isFirst {
		return refuse("Name the preset first, then what is different.", "The preset \"%s\" must be the first part.", part)
	}
	err := r.read(preset)
	r.seen = map[string]bool{}
	r.fromPreset = true
	return err
}

func (r *reader) readWidth(part string, field int, value string) error {
	width, most := 0, 31
	if field == fieldTimestamp {
		most = maxBits - 1
	}
	if widthPattern.MatchString(value) {
		width, _ = strconv.Atoi(value)
	}
	if width < 1 || width > most {
		return refuse("Give a field's width as a number of bits, as in \"sequence 12\".", "\"%s\" must give the %s field 1 to %d bits.",
			part, fieldNames[field], most)
	}
	if r.fromPreset && r.bits[field] == 0 {
		return refuse("Spell out the whole layout, with its fields in order.", "\"%s\" changes a field that the preset does not have.",
			part)
	}
	if r.bits[field] == 0 {
		r.order = append(r.order, field)
	}
	r.bits[field] = uint(width)
	if r.order[0] != fieldTimestamp {
		return refuse("Ids sort by time only if the timestamp has the highest bits.",
			"\"%s\" stands before the timestamp, which must be the first field.", part)
	}
	return nil
}

func (r *reader) readTick(part, value string) error {
	r.tick = 0
	if match := tickPattern.FindStringSubmatch(value); match != nil {
		number, _ := strconv.ParseInt(match[1], 10, 64)
		r.tick = number * units[strings.ToLower(match[2])]
	}
	if r.tick < 1 || r.tick > maxTick {
		return refuse("Give the length of a tick as a number with the unit us, ms or s, as in \"tick 1ms\".",
			"\"%s\" must give a tick from 1us to 86400s.", part)
	}
	return nil
}

func (r *reader) readEpoch(part, value string) error {
	match := epochPattern.FindStringSubmatch(value)
	wrong := refuse("Write the epoch as in \"epoch 2024-01-01T00:00:00Z\" or \"epoch 2016-09-20T00:00:00+08:00\".",
		"\"%s\" must give an ISO 8601 time with a zone, in the years 0001 to 9999.", part)
	if match == nil {
		return wrong
	}
	local, err := time.Parse(time.RFC3339, match[1]+"T"+match[2]+"Z")
	hours, _ := strconv.Atoi("0" + match[5])
	minutes, _ := strconv.Atoi("0" + match[6])
	zone := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if match[4] != "-" {
		zone = -zone
	}
	epoch := local.Add(zone)
	if err != nil || hours > 15 || minutes > 59 || local.Before(firstEpoch) || epoch.Before(firstEpoch) || !epoch.Before(endEpoch) {
		return wrong
	}
	fraction, _ := strconv.ParseInt((match[3] + "000000")[:6], 10, 64)
	r.epoch = epoch.Unix()*second + fraction
	return nil
}

func (r *reader) checkWhole(definition string) error {
	sum := uint(0)
	for _, field := range []int{fieldTimestamp, fieldSequence} {
		if r.bits[field] == 0 {
			return refuse("Add the field, as in \"timestamp 41, worker 10, sequence 12\".", "A layout needs at least 1 bit of %s.",
				fieldNames[field])
		}
	}
	for _, width := range r.bits {
		sum += width
	}
	if sum > maxBits {
		parts := strings.Split(definition, ",")
		return refuse("Make a field narrower; ids are never negative, so the top bit of a bigint is not used.",
			"The widths add up to %d bits, more than %d (last part \"%s\").", sum, maxBits, strings.TrimSpace(parts[len(parts)-1]))
	}
	return nil
}

func lowBits(width uint) int64 { return 1<<width - 1 }

// String returns all parts, as the server writes them: equal layouts have equal ones.
func (l *Layout) String() string {
	text := &strings.Builder{}
	for _, field := range l.order {
		fmt.Fprintf(text, "%s %d, ", fieldNames[field], l.bits[field])
	}
	for _, unit := range unitNames {
		if l.tick%units[unit] == 0 {
			fmt.Fprintf(text, "tick %d%s", l.tick/units[unit], unit)
			break
		}
	}
	epoch := time.UnixMicro(l.epoch).UTC()
	text.WriteString(epoch.Format(", epoch 2006-01-02T15:04:05"))
	switch fraction := epoch.Nanosecond() / 1000; {
	case fraction%1000 != 0:
		fmt.Fprintf(text, ".%06d", fraction)
	case fraction != 0:
		fmt.Fprintf(text, ".%03d", fraction/1000)
	}
	return text.String() + "Z"
}

// isIssuable says whether ids can be issued with it, not only parsed.
func (l *Layout) isIssuable() bool { return l.bits[fieldWorker] > 0 && l.tick <= second }

func (l *Layout) maxSequence() int64 { return lowBits(l.bits[fieldSequence]) }

// lastNumber is the greatest number that can be leased: that of all bits is reserved, and a registry has 2^32 to choose from.
func (l *Layout) lastNumber() int64 {
	last := lowBits(l.bits[fieldDatacenter]+l.bits[fieldWorker]+l.bits[fieldClock]) - 1
	if last > 1<<32-1 {
		return 1<<32 - 1
	}
	return last
}

// begin is when a tick begins, at most the last time of 63 bits: timestamptz ends later.
func (l *Layout) begin(tick int64) int64 {
	if at := l.epoch + tick*l.tick; at >= l.epoch || tick < 0 {
		return at
	}
	return math.MaxInt64
}

// nodeBits returns the bits of a node number at their places in an id.
func (l *Layout) nodeBits(number int64) (placed int64) {
	for _, field := range []int{fieldClock, fieldWorker, fieldDatacenter} {
		placed |= number & lowBits(l.bits[field]) << l.shift[field]
		number >>= l.bits[field]
	}
	return placed
}

func (l *Layout) field(id int64, field int) int64 {
	return id >> l.shift[field] & lowBits(l.bits[field])
}

// Parts are what an id says.  Fields that the layout does not have are 0.
type Parts struct {
	Timestamp                                           time.Time
	DatacenterID, WorkerID, Clock, Sequence, NodeNumber int64
}

// Parse returns the parts of an id.
func (l *Layout) Parse(id int64) (Parts, error) {
	most := l.maxTick<<l.shift[fieldTimestamp] | lowBits(l.shift[fieldTimestamp])
	if id < 0 || id > most {
		return Parts{}, &Error{Reason: Invalid, message: fmt.Sprintf("id %d is outside layout \"%s\"\nDetail: Its ids are from 0 to %d.",
			id, l, most)}
	}
	parts := Parts{DatacenterID: l.field(id, fieldDatacenter), WorkerID: l.field(id, fieldWorker), Clock: l.field(id, fieldClock),
		Sequence: l.field(id, fieldSequence)}
	parts.NodeNumber = (parts.DatacenterID<<l.bits[fieldWorker]|parts.WorkerID)<<l.bits[fieldClock] | parts.Clock
	// in two steps, since a wide timestamp has more microseconds than 63 bits
	epoch, span := time.UnixMicro(l.epoch), uint64(l.field(id, fieldTimestamp))*uint64(l.tick)
	parts.Timestamp = time.Unix(epoch.Unix()+int64(span/second), int64(epoch.Nanosecond())+int64(span%second)*1000).UTC()
	return parts, nil
}
