// Tests that identifiers use the words of docs/learn/glossary.md, and none that a reader of this tree alone would know.
package layout

import (
	"go/ast"
	"go/token"
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
	for _, f := range goFiles(t, "") {
		for _, p := range privateIn(f.tree) {
			t.Errorf("%s: %s: write %s", f.set.Position(p.id.Pos()), p.id.Name, p.instead)
		}
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
