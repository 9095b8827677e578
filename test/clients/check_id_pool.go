// check_id_pool.go
//	  Checks the type of doc/clients/go.md.
package main

import (
	"context"
	"database/sql"
	"log"
	"os"
	"time"

	_ "github.com/lib/pq"
)

var (
	ctx  = context.Background()
	pool IDPool
)

func check(right bool, format string, values ...any) {
	if !right {
		log.Panicf(format, values...)
	}
}

func next() int64 {
	id, err := pool.Next(ctx)
	check(err == nil, "%v", err)
	return id
}

func newest() (id int64) {
	err := pool.DB.QueryRow("SELECT snowflake_nextval()").Scan(&id)
	check(err == nil, "%v", err)
	return id
}

func checkIncrease(ids []int64) {
	for i := 1; i < len(ids); i++ {
		check(ids[i-1] < ids[i], "ids do not increase")
	}
}

// grow empties the pool until it gets n ids at once, and returns the ids.
func grow(n int) (ids []int64) {
	for pool.n < n {
		ids = append(ids, next())
		check(len(ids) < 100000, "n is %d after so many ids", pool.n)
	}
	return ids
}

// nextPool takes ids until the pool was filled again; the first of these is taken.
func nextPool() {
	for now := newest(); next() < now; {
	}
}

func checkGrowth() []int64 {
	ids := grow(most)
	for i := 0; i < 3*most; i++ {
		ids = append(ids, next())
		check(pool.n <= most, "n is %d", pool.n)
	}
	checkIncrease(ids)
	return ids
}

// checkSize sees so many ids come from one pool: they are less than one that the server issues
// next.
func checkSize() {
	var n, count int
	for turn := 0; turn < 100; turn++ {
		nextPool()
		now := newest()
		n = pool.n
		for count = 1; next() < now; count++ {
		}
		if count == n {
			return
		}
	}
	check(false, "n is %d, but there were %d ids", n, count)
}

func checkGoroutines(ids []int64) {
	taken := make(chan []int64)
	for i := 0; i < 4; i++ {
		go func() {
			mine := make([]int64, 50000)
			for i := range mine {
				mine[i] = next()
			}
			taken <- mine
		}()
	}
	every := map[int64]bool{}
	for i := 0; i < 5; i++ {
		checkIncrease(ids)
		for _, id := range ids {
			check(!every[id], "id %d came twice", id)
			every[id] = true
		}
		if i < 4 {
			ids = <-taken
		}
	}
}

func checkAge() {
	grow(1000)
	nextPool()
	now, n := newest(), pool.n
	time.Sleep(1100 * time.Millisecond)
	check(next() > now, "an id older than a second was used")
	check(pool.n == n/2, "n was %d and is %d", n, pool.n)
}

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	check(err == nil, "%v", err)
	pool.DB = db
	checkGoroutines(checkGrowth())
	checkSize()
	checkAge()
}
