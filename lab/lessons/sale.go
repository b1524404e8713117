package lessons

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/flashsale"
)

var buy = script("buy")

// notOversold is what a shop promises.
const notOversold = "no more is sold than there is"

// saleLessons are about doing without a lock.
func saleLessons() []Lesson {
	return []Lesson{{
		Number: 22, Name: "flash-sale", Title: "The flash sale: a lock, or one command?",
		Idea: "A shop has a few goods, and all buyers come at once. Each looks at what is left, and writes down one less. " +
			"A buyer that looks while another is about to write sees goods that are gone.",
		Fix: "A lock around looking and writing keeps the books right, and makes all buyers wait for each other. " +
			"If both happen in Redis, one atomic script does the same without a lock: take a lock only for what no single step can do. " +
			"In SQL, too: UPDATE goods SET stock = stock - 1 WHERE id = 1 AND stock > 0 is one step, and a version column (… WHERE version = 7) does what WATCH does.",
		Acts: []Act{
			{Title: "one left, two buyers, no lock", play: func(s *Stage) {
				a, b, sh := s.client("A"), s.client("B"), s.shop(1)
				seen := map[*client]int{}
				for _, c := range []*client{a, b} {
					seen[c], _ = strconv.Atoi(c.do(s.redis(), "GET", sh.goods).text())
				}
				for _, c := range []*client{b, a} {
					if seen[c] > 0 {
						c.do(s.redis(), "SET", sh.goods, seen[c]-1)
						c.do(s.redis(), "RPUSH", sh.orders, c.name)
					}
				}
				sh.audit()
			}},
			{Title: "the same two, and one atomic script", lists: []string{"buy"}, play: func(s *Stage) {
				a, b, sh := s.client("A"), s.client("B"), s.shop(1)
				a.node(s.redis()).at(rig.At("script buy", 1, rig.Before, func() {
					s.note("B's command overtakes A's on the way") // whose ever comes first, the other finds what is left
					sh.buys(b)
				}))
				sh.buys(a)
				sh.audit()
			}},
			{Title: fmt.Sprintf("the whole sale: %d goods, %d buyers at once in %d copies of the program", flashsale.Goods, flashsale.Copies*flashsale.Buyers, flashsale.Copies),
				Timed: true, play: (*Stage).flashSale},
		},
	}}
}

// A shop has some of one good.
type shop struct {
	s             *Stage
	goods, orders string // keys
	had           int
}

func (s *Stage) shop(goods int) shop {
	name := "{" + s.name + "}"
	sh := shop{s: s, goods: s.leaves(name + ":goods"), orders: s.leaves(name + ":orders"), had: goods}
	s.redis().look("SET", sh.goods, goods)
	return sh
}

// buys is the whole purchase, in one step.
func (sh shop) buys(c *client) {
	if _, err := c.tryEval(sh.s.redis(), buy, []string{sh.goods, sh.orders}, c.name); err != nil {
		sh.s.Cannot("%s buys nothing: %w", c.name, err)
	}
}

// audit judges by the books.
func (sh shop) audit() {
	orders, _ := sh.s.redis().look("LRANGE", sh.orders, 0, -1).([]any)
	books := fmt.Sprintf("goods: %d, orders: %d", sh.had, len(orders))
	sh.s.decide(notOversold, len(orders) <= sh.had, books, books)
}

// flashSale is the sale in earnest, of which only the table is shown.
func (s *Stage) flashSale() {
	r, err := flashsale.Run(s.ctx, flashsale.Config{
		Servers:  []*redistest.Server{s.redis().redis},
		Kind:     s.school.farm.Kind(),
		Variants: slices.DeleteFunc(subjects.All(), func(v subjects.Variant) bool { return v.Name != "fairqueue" }),
	})
	if err != nil {
		s.Cannot("the sale: %w", err)
	}
	t := Table{
		Title: fmt.Sprintf("A buyer looks at what is left, thinks for %v, and writes", r.Think.Duration()),
		Head:  []string{"", "sold", "oversold", "told to retry", "time", "commands"},
	}
	for _, y := range r.Results {
		if y.Verdict == flashsale.Wrong {
			s.Cannot("%v: %d sold, %d left, %d gave up: %w", y.Way, y.Sold, y.Left, y.GaveUp, errors.New(strings.Join(y.Errors, "; ")))
		}
		took := "–" // the imitation's would mislead
		if r.Redis.Comparable {
			took = fmt.Sprintf("%.0f ms", y.Took)
		}
		t.Rows = append(t.Rows, []string{y.Way.String(), fmt.Sprint(y.Sold), fmt.Sprint(y.Oversold), fmt.Sprint(y.Refused), took, fmt.Sprint(y.Commands)})
		s.judge(notOversold, y.Oversold == 0, "%v: %d sold, of %d", y.Way, y.Sold, r.Goods)
	}
	s.trace.Tables = append(s.trace.Tables, t)
}
