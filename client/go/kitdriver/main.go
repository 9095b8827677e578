// The driver of client/kit for this library.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example/snowflake"
)

var (
	settings       = map[string]string{"layout": "twitter"}
	offset, frozen int64
	ids            *snowflake.Snowflake
	begun          chan string
	closingText    string // a line of the log with it closes the node
	logTime        time.Duration
	background     = context.Background()
)

func clock() int64 {
	if at := atomic.LoadInt64(&frozen); at != 0 {
		return at
	}
	return time.Now().UnixMicro() + atomic.LoadInt64(&offset)
}

func join(list []int64) string {
	words := make([]string, len(list))
	for n, id := range list {
		words[n] = strconv.FormatInt(id, 10)
	}
	return strings.Join(words, " ")
}

func number(word string) int {
	value, err := strconv.Atoi(word)
	if err != nil {
		panic(err)
	}
	return value
}

func log(line string) {
	time.Sleep(logTime)
	fmt.Fprintln(os.Stderr, line)
	if closingText != "" && strings.Contains(line, closingText) {
		ids.Close()
	}
}

func open() (err error) {
	host := strings.Split(settings["registry"], ":")
	set := []snowflake.Option{snowflake.WithClock(clock), snowflake.WithLayout(settings["layout"])}
	if closingText != "" || logTime > 0 {
		set = append(set, snowflake.WithLog(log))
	}
	if name, ok := settings["host_name"]; ok {
		set = append(set, snowflake.WithHostName(name))
	}
	for name, option := range map[string]func(time.Duration) snowflake.Option{"lease_duration": snowflake.LeaseDuration,
		"max_ahead": snowflake.MaxAhead, "max_wait": snowflake.MaxWait} {
		if value, ok := settings[name]; ok {
			seconds, _ := strconv.ParseFloat(value, 64)
			set = append(set, option(time.Duration(seconds*1e9)))
		}
	}
	ids, err = snowflake.New(fmt.Sprintf("host=%s port=%s user=%s dbname=postgres sslmode=disable", host[0], host[1],
		settings["user"]), settings["name"], set...)
	return err
}

func many(threads, each int) (string, error) {
	got, errs := make([][]int64, threads), make([]error, threads)
	var wait sync.WaitGroup
	for n := range got {
		wait.Add(1)
		go func(n int) {
			defer wait.Done()
			for i := 0; i < each && errs[n] == nil; i++ {
				var id int64
				id, errs[n] = ids.Next(background)
				got[n] = append(got[n], id)
			}
		}(n)
	}
	wait.Wait()
	var all []int64
	for n := range got {
		if errs[n] != nil {
			return "", errs[n]
		}
		all = append(all, got[n]...)
	}
	return join(all), nil
}

func answer(name, rest string) (string, error) {
	words := strings.Split(rest, " ")
	switch name {
	case "set":
		settings[words[0]] = strings.Join(words[1:], " ")
	case "spell":
		text := []rune{}
		for _, point := range words[1:] {
			value, err := strconv.ParseUint(point, 16, 32)
			if err != nil {
				panic(err)
			}
			text = append(text, rune(value))
		}
		settings[words[0]] = string(text)
	case "open":
		return "", open()
	case "next":
		if rest == "" {
			id, err := ids.Next(background)
			return strconv.FormatInt(id, 10), err
		}
		list, err := ids.NextN(background, number(rest))
		return join(list), err
	case "many":
		return many(number(words[0]), number(words[1]))
	case "burn":
		for n := number(rest); n > 0; n-- {
			if _, err := ids.Next(background); err != nil {
				return "", err
			}
		}
	case "begin":
		begun = make(chan string, 1)
		go func() { begun <- run(rest) }()
	case "parse":
		layout, err := snowflake.ParseLayout(strings.Join(words[1:], " "))
		if err != nil {
			return "", err
		}
		parts, err := layout.Parse(int64(number(words[0])))
		// a time can have more microseconds than 63 bits
		micros := new(big.Int).Mul(big.NewInt(parts.Timestamp.Unix()), big.NewInt(1_000_000))
		micros.Add(micros, big.NewInt(int64(parts.Timestamp.Nanosecond()/1000)))
		return fmt.Sprint(micros, parts.DatacenterID, parts.WorkerID, parts.Clock, parts.Sequence, parts.NodeNumber), err
	case "layout":
		layout, err := snowflake.ParseLayout(rest)
		if err != nil {
			return "", err
		}
		return layout.String(), nil
	case "clock":
		seconds, err := strconv.ParseFloat(rest, 64)
		atomic.StoreInt64(&offset, int64(seconds*1e6))
		atomic.StoreInt64(&frozen, 0)
		return "", err
	case "freeze":
		atomic.StoreInt64(&frozen, clock())
		return fmt.Sprint(frozen), nil
	case "state":
		state, until := ids.State(), int64(0)
		if !state.LeasedUntil.IsZero() {
			until = state.LeasedUntil.UnixMicro()
		}
		return strings.TrimSpace(fmt.Sprint(state.Phase, " ", state.NodeNumber, " ", until, " ", state.Problem)), nil
	case "logging":
		closingText = rest
	case "slow":
		seconds, err := strconv.ParseFloat(rest, 64)
		logTime = time.Duration(seconds * 1e9)
		return "", err
	case "bounded":
		return "", nil
	case "fork", "nested", "closing", "aclose":
		return "none", nil
	case "forget":
		ids = nil
		for n := 0; n < 3; n++ {
			runtime.GC()
			time.Sleep(20 * time.Millisecond)
		}
	case "close":
		return "", ids.Close()
	case "quit":
		ids.Close()
		os.Exit(0)
	default:
		panic(name)
	}
	return "", nil
}

func run(line string) string {
	name, rest, _ := strings.Cut(line, " ")
	if name == "end" {
		return <-begun
	}
	said, err := answer(name, rest)
	var why *snowflake.Error
	if errors.As(err, &why) {
		return fmt.Sprintf("error %s %s", why.Reason, why)
	} else if err != nil {
		panic(err)
	}
	return strings.TrimSpace("ok " + said)
}

func main() {
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		fmt.Println(strings.ReplaceAll(run(commands.Text()), "\n", "\\n"))
	}
}
