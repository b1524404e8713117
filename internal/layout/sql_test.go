// The SQL in documents and lessons names no table and no column by a word that PostgreSQL reserves.
package layout

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// reserved are the words that are no names of columns in PostgreSQL, also those that may name a function or a type:
// https://www.postgresql.org/docs/current/sql-keywords-appendix.html
var reserved = strings.Fields(`all analyse analyze and any array as asc asymmetric authorization binary both case cast check
	collate collation column concurrently constraint create cross current_catalog current_date current_role current_schema
	current_time current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign
	freeze from full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit
	localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references
	returning right select session_user similar some symmetric system_user table tablesample then to trailing true union
	unique user using variadic verbose when where window with`)

func TestSQL(t *testing.T) {
	update := regexp.MustCompile(`UPDATE (\w+)\s+SET ([^;"` + "`" + `]*)`)
	column := regexp.MustCompile(`(\w+) ?[=<>]`)
	found := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == ".git" {
			return err
		}
		if ext := filepath.Ext(path); ext != ".md" && ext != ".go" || filepath.Base(path) == "sql_test.go" {
			return nil
		}
		for _, statement := range update.FindAllStringSubmatch(read(t, path), -1) {
			found++
			names := []string{statement[1]}
			for _, c := range column.FindAllStringSubmatch(statement[2], -1) {
				names = append(names, c[1])
			}
			for _, name := range names {
				if slices.Contains(reserved, strings.ToLower(name)) {
					t.Errorf("%s: PostgreSQL reserves %q: %s", path, name, statement[0])
				}
			}
		}
		return nil
	})
	if err != nil || found < 3 {
		t.Errorf("found %d statements (%v), want those of documents and of lessons", found, err)
	}
}
