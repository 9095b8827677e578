// Makes ids in its own process, for programs.pl: the commands of Programs.java, for one thread, and `what` there is.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/rs/xid"

	"example/snowflake"
)

const (
	part  = 64
	batch = 1000
)

// what is made is kept, so that it is made
var (
	moment int64
	random uuid.UUID
	other  xid.ID
)

func main() {
	ctx := context.Background()
	ids, err := snowflake.New(os.Args[2], "bench", snowflake.WithLayout(os.Args[1]))
	if err != nil {
		log.Fatal(err)
	}
	var last int64
	check := func(id int64, err error) {
		if err != nil {
			log.Fatal(err)
		}
		if id <= last {
			log.Fatalf("%d follows %d", id, last)
		}
		last = id
	}
	// so many calls of a kind; each has a loop of its own
	calls := map[string]func(){
		"ids": func() {
			for i := 0; i < part; i++ {
				check(ids.Next(ctx))
			}
		},
		"batch": func() {
			list, err := ids.NextN(ctx, batch)
			if err != nil {
				log.Fatal(err)
			}
			check(list[0], nil)
			check(list[batch-1], nil)
		},
		"clock": func() {
			for i := 0; i < part; i++ {
				moment = time.Now().UnixMicro()
			}
		},
		"uuid": func() {
			for i := 0; i < part; i++ {
				random = uuid.New()
			}
		},
		"xid": func() {
			for i := 0; i < part; i++ {
				other = xid.New()
			}
		},
	}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		words := strings.Split(commands.Text(), "\t")
		if words[0] == "what" {
			fmt.Println("ids batch clock uuid xid")
			continue
		}
		run, count, each := calls[words[1]], 0, part
		if words[1] == "batch" {
			each = batch
		}
		milliseconds, err := strconv.Atoi(words[3])
		if err != nil {
			log.Fatal(err)
		}
		begin := time.Now()
		for until := begin.Add(time.Duration(milliseconds) * time.Millisecond); time.Now().Before(until); count += each {
			run()
		}
		fmt.Println(int64(float64(count) / time.Since(begin).Seconds()))
	}
	if err := ids.Close(); err != nil {
		log.Fatal(err)
	}
}
