// Tests that identifiers use the words of docs/learn/glossary.md, and none that a reader of this tree alone would know.
package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// privateWords must not be a part of an identifier. The value says what to write instead. .ci/vale/locks/Private.yml
// has them for prose.
var privateWords = map[string]string{
	"unanswered":  "unconfirmed",
	"rests":       "blocked (a waiter), idle (a connection)",
	"letIn":       "granted, admitted",
	"letGo":       "release",
	"comeForward": "promoted",
	"gone":        "closed, lost, expired, deleted: what has happened",
	"deaf":        "unresponsive",
	"doubt":       "unconfirmed",
	"doubts":      "unconfirmed",
	"crowded":     "busy",
	"worn":        "retired",
	"patrol":      "check",
	"nudge":       "wake",
	"doom":        "fail",
	"doomed":      "failed",
	"poke":        "wake",
	"owed":        "pending",
	"hasten":      "cancel",
}

// privateNames are ordinary words that say too little as the whole name of a function, a type, a field, a parameter or
// what a package declares. Variables of a function may have them.
var privateNames = map[string]string{
	"given": "granted",
	"took":  "granted, elapsed",
	"away":  "failed, remote",
	"own":   "whose: options, caller",
	"short": "what is short: shortTTL",
	"sound": "valid, correct",
	"let":   "what is let: release",
}

// TestPrivateWords finds no private word in an identifier.
func TestPrivateWords(t *testing.T) {
	eachFile(t, func(_ string, set *token.FileSet, tree *ast.File) {
		for _, p := range privateIn(tree) {
			t.Errorf("%s: %s: write %s", set.Position(p.id.Pos()), p.id.Name, p.instead)
		}
	})
}

// TestPrivateIn shows what the rules find, and what they leave alone.
func TestPrivateIn(t *testing.T) {
	const source = `package p
type deafHook struct { letIn, given, shortTTL int; gone bool }
func (h deafHook) own(given ...int) (doubt error) {
	given, pokes, goOn := 1, 2, 3
	for rests := range given { _ = rests }
	var doomed, dooms = 1, 2
	return nil
}
func LetGo(took int)
func outlet(ingoing, borrowed, undoomed int)
const away, wornOut = 1, 2
type short interface { nudge(); forgone() }
`
	tree, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range privateIn(tree) {
		got = append(got, v.id.Name)
	}
	want := []string{"deafHook", "letIn", "given", "gone", "own", "given", "doubt", "rests", "doomed", "LetGo", "took", "away", "wornOut", "short", "nudge"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

type private struct {
	id      *ast.Ident
	instead string
}

// privateIn returns the identifiers that a file declares with a private word.
func privateIn(tree *ast.File) (found []private) {
	local := 0 // until where the function body reaches in which we are
	check := func(ids ...*ast.Ident) {
		for _, id := range ids {
			words := " " + strings.Join(wordsOf(id.Name), " ") + " "
			for word, instead := range privateWords {
				if strings.Contains(words, " "+strings.Join(wordsOf(word), " ")+" ") {
					found = append(found, private{id, instead})
				}
			}
			if instead, ok := privateNames[id.Name]; ok && int(id.Pos()) >= local {
				found = append(found, private{id, instead})
			}
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			check(n.Name)
		case *ast.BlockStmt:
			local = max(local, int(n.End()))
		case *ast.TypeSpec:
			check(n.Name)
		case *ast.Field:
			check(n.Names...)
		case *ast.ValueSpec:
			check(n.Names...)
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					check(id)
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					check(id)
				}
			}
		}
		return true
	})
	return found
}

// wordsOf splits a name in camel case: HTTPServer is http and server.
func wordsOf(name string) (words []string) {
	runes := []rune(name)
	start := 0
	for i, r := range runes {
		begins := unicode.IsUpper(r) && i > 0 && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if begins || r == '_' {
			words, start = append(words, strings.ToLower(strings.Trim(string(runes[start:i]), "_"))), i
		}
	}
	return append(words, strings.ToLower(strings.Trim(string(runes[start:]), "_")))
}

// typeHomes are names of types that had several meanings, and the folders that declare one. It has one meaning there.
var typeHomes = map[string][]string{
	"contender": {"conformance", "lab/contender", "lab/faults"},                       // a caller that wants the lock
	"verdict":   {"conformance", "lab/faults"},                                        // what became of a lock in a play
	"line":      {"engine"},                                                           // the waiters of one process for one lock
	"request":   {"clients", "internal/memory", "internal/subscription", "lockstest"}, // what a client asks of a server
	"turn":      {"engine"},                                                           // in which a process hands a lock over
}

// TestOneMeaning finds no such type elsewhere, and no folder on the list that has none.
func TestOneMeaning(t *testing.T) {
	found := map[string]bool{}
	eachFile(t, func(file string, set *token.FileSet, tree *ast.File) {
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			name := strings.ToLower(spec.Name.Name)
			homes, ok := typeHomes[name]
			i := slices.IndexFunc(homes, func(home string) bool { return strings.HasPrefix(file, home+"/") })
			if i >= 0 {
				found[name+homes[i]] = true
			} else if ok {
				t.Errorf("%s: type %s: that is its name in %v: call it what it is here", set.Position(spec.Pos()), spec.Name.Name, homes)
			}
			return true
		})
	})
	for name, homes := range typeHomes {
		for _, home := range homes {
			if !found[name+home] {
				t.Errorf("%s has no type %s any more: take it off the list", home, name)
			}
		}
	}
}

// eachFile parses each Go file; file is its path from the root.
func eachFile(t *testing.T, do func(file string, set *token.FileSet, tree *ast.File)) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		files++
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		do(filepath.ToSlash(name), set, tree)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 300 {
		t.Fatalf("there are %d files: the test has lost its sight", files)
	}
}
