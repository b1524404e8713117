package lessons

import "strings"

// A link is where else a lesson's subject is.
type link struct {
	articles string // their rows that name the lesson, in docs/learn/articles.md
	right    string // the file of this project that does it right
}

// links are those of each lesson, by its number. A lesson without rows has its source elsewhere on that page, or nowhere.
var links = map[int]link{
	1:  {"1.6 3.7 5.16", "setnxpx/setnxpx.go"},
	2:  {"2.3 3.8 3.9", "setnxpx/setnxpx.go"},
	3:  {"1.4 1.8", "setnxgetset/setnxgetset.go"},
	4:  {"1.9 1.11 4.2 4.3", "setnxgetset/setnxgetset.go"},
	5:  {"1.7", "setnxpx/setnxpx.go"},
	6:  {"1.2 2.4 5.8 5.9 5.12 5.22", "setnxgetset/setnxgetset.go"},
	7:  {"1.12 2.2 3.10 5.13 5.15 5.17", "setnxpx/setnxpx.go"},
	8:  {"3.13 4.4", "luascript/release.lua"},
	9:  {"2.8 3.13 4.5 4.7", "luascript/release.lua"},
	10: {"2.16 3.11 3.12 4.9 4.10 5.24", "engine/renewal.go"},
	11: {"3.32", "docs/use/fencing/redis.go"},
	12: {"4.6 4.11 4.12 5.18", "reentrant/release.lua"},
	13: {"3.1 3.3 3.14 3.15 3.16", "docs/run/operating.md"},
	14: {"3.17 3.18", "driver/rediskit/acks.go"},
	15: {"3.19 3.21 3.23 3.24", "redlock/redlock.go"},
	16: {"3.28", "engine/reason.go"},
	17: {"3.1 3.25 3.29", "driver/driver.go"},
	18: {"3.30 3.31", "redlock/guard.lua"},
	19: {"", "redlock/writeback.lua"},
	20: {"2.7", "clients/redigo/node.go"},
	21: {"2.5 4.8 5.22", "fairqueue/release.lua"},
	22: {"1.1 1.2 1.3 5.26 5.27 5.28 5.30", "lab/flashsale/buy.lua"},
	23: {"3.1", "docs/run/operating.md"},
	24: {"3.17", "driver/rediskit/acks.go"},
	25: {"", "semaphore/permits.lua"},
	26: {"", "rwlock/phases.lua"},
}

// Right is the file of this project that does right what the lesson shows.
func (l Lesson) Right() string { return links[l.Number].right }

// Articles are the rows of docs/learn/articles.md that name the lesson; empty: none does.
func (l Lesson) Articles() string { return strings.ReplaceAll(links[l.Number].articles, " ", ", ") }
