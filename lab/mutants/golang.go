package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// A goFile is a Go source with all its mutants, each behind a switch of its own: see helpers.go.txt.
type goFile struct {
	path    string // from the repository's root
	source  string
	mutants []*mutant
	edits   []edit
}

// mutateGo finds the mutants of a Go file. The edits call for the ids, so number comes first.
func mutateGo(path, source string) (*goFile, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	g := &goFinder{goFile: &goFile{path: path, source: source}, files: files}
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		g.fn, g.from, g.to = funcName(fn), g.line(fn.Pos()), g.line(fn.End())
		g.kept = map[ast.Stmt]bool{}
		ast.Inspect(fn, g.look)
	}
	slices.SortStableFunc(g.mutants, func(a, b *mutant) int { return a.line - b.line })
	return g.goFile, nil
}

// funcName is such as New or (*line).successor.
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	recv := types.ExprString(fn.Recv.List[0].Type)
	if _, pointer := fn.Recv.List[0].Type.(*ast.StarExpr); pointer {
		recv = "(" + recv + ")"
	}
	return recv + "." + fn.Name.Name
}

type goFinder struct {
	*goFile
	files    *token.FileSet
	fn       string
	from, to int
	kept     map[ast.Stmt]bool // they end a function, or are all that a block does
}

func (g *goFinder) line(p token.Pos) int   { return g.files.Position(p).Line }
func (g *goFinder) offset(p token.Pos) int { return g.files.Position(p).Offset }

func (g *goFinder) text(from, to token.Pos) string { return g.source[g.offset(from):g.offset(to)] }

func (g *goFinder) mutant(op string, n ast.Node) *mutant {
	m := &mutant{file: g.path, fn: g.fn, op: op, text: oneLine(g.text(n.Pos(), n.End())), line: g.line(n.Pos()), from: g.from, to: g.to}
	g.mutants = append(g.mutants, m)
	return m
}

// around puts a part of the source between two texts; in the first, # stands for the mutant's id.
func (g *goFinder) around(m *mutant, from, to token.Pos, open, close string) {
	g.edits = append(g.edits, edit{start: g.offset(from), end: g.offset(to), open: open, close: close, m: m})
}

func (g *goFinder) instead(m *mutant, from, to token.Pos, text string) {
	g.edits = append(g.edits, edit{start: g.offset(from), end: g.offset(to), open: text, instead: true, m: m})
}

func (g *goFinder) look(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		g.function(n.Type, n.Body)
	case *ast.FuncLit:
		g.function(n.Type, n.Body)
	case *ast.IfStmt:
		if n.Else == nil && n.Init == nil {
			g.keepOnly(n.Body.List) // without it the if does nothing: that is another mutant
		}
		g.negate(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			g.negate(n.Cond)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					g.negate(e)
				}
			}
		}
	case *ast.BlockStmt:
		g.drop(n.List)
	case *ast.CaseClause:
		g.drop(n.Body)
	case *ast.CommClause:
		g.drop(n.Body)
	case *ast.ReturnStmt:
		g.values(n.Results)
	case *ast.AssignStmt:
		g.values(n.Rhs)
	case *ast.CallExpr:
		g.values(n.Args)
		g.call(n)
	case *ast.BinaryExpr:
		g.bound(n)
	case *ast.GenDecl:
		return n.Tok == token.VAR
	}
	return true
}

// function lets a function with results end where the compiler sees no return, and keeps its last
// statement: without it, nothing but that panic would come.
func (g *goFinder) function(t *ast.FuncType, body *ast.BlockStmt) {
	if t.Results == nil {
		return
	}
	g.keepLast(body.List)
	g.around(nil, body.Rbrace, body.Rbrace, `; panic("mutant: no return")`, "")
}

// keepLast keeps the statement after which the function would end without a result.
func (g *goFinder) keepLast(list []ast.Stmt) {
	if len(list) == 0 {
		return
	}
	last := list[len(list)-1]
	g.kept[last] = true
	switch s := last.(type) {
	case *ast.BlockStmt:
		g.keepLast(s.List)
	case *ast.IfStmt:
		g.keepLast(s.Body.List)
		if s.Else != nil {
			g.keepLast([]ast.Stmt{s.Else})
		}
	case *ast.SwitchStmt:
		g.keepLastOfEach(s.Body.List)
	case *ast.TypeSwitchStmt:
		g.keepLastOfEach(s.Body.List)
	case *ast.SelectStmt:
		g.keepLastOfEach(s.Body.List)
	}
}

func (g *goFinder) keepLastOfEach(clauses []ast.Stmt) {
	for _, c := range clauses {
		switch c := c.(type) {
		case *ast.CaseClause:
			g.keepLast(c.Body)
		case *ast.CommClause:
			g.keepLast(c.Body)
		}
	}
}

func (g *goFinder) keepOnly(list []ast.Stmt) {
	if len(list) == 1 {
		g.kept[list[0]] = true
	}
}

// drop makes a mutant of each statement that can be left out.
func (g *goFinder) drop(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.DeclStmt, *ast.LabeledStmt, *ast.BlockStmt, *ast.EmptyStmt, *ast.CaseClause, *ast.CommClause:
			continue
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.BranchStmt:
			if s.Tok == token.FALLTHROUGH {
				continue
			}
		case *ast.ExprStmt:
			if marksHelper(s) {
				continue
			}
		}
		if !g.kept[s] {
			g.around(g.mutant("drop", s), s.Pos(), s.End(), "if !mutantOn(#) { ", " }")
		}
	}
}

// marksHelper reports whether s is t.Helper(), which only says in whose line a test fails.
func marksHelper(s *ast.ExprStmt) bool {
	call, ok := s.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && f.Sel.Name == "Helper" && len(call.Args) == 0
}

// negate makes a mutant of each part of a condition that && and || join.
func (g *goFinder) negate(e ast.Expr) {
	switch x := e.(type) {
	case *ast.ParenExpr:
		g.negate(x.X)
	case *ast.UnaryExpr:
		if x.Op == token.NOT {
			g.negate(x.X)
		}
	case *ast.BinaryExpr:
		if x.Op == token.LAND || x.Op == token.LOR {
			g.negate(x.X)
			g.negate(x.Y)
			return
		}
		g.negation(e)
	default:
		g.negation(e)
	}
}

func (g *goFinder) negation(e ast.Expr) {
	g.around(g.mutant("negate", e), e.Pos(), e.End(), "mutantNot(#, ", ")")
}

// values makes mutants of what is plainly a condition, though not of an if.
func (g *goFinder) values(list []ast.Expr) {
	for _, e := range list {
		switch x := e.(type) {
		case *ast.UnaryExpr:
			if x.Op == token.NOT {
				g.negate(e)
			}
		case *ast.BinaryExpr:
			switch x.Op {
			case token.LAND, token.LOR, token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
				g.negate(e)
			}
		}
	}
}

var bounds = map[token.Token]string{token.LSS: "mutantLess", token.LEQ: "mutantLessEqual", token.GTR: "mutantMore", token.GEQ: "mutantMoreEqual"}

// bound moves a bound by one: < becomes <=, and so on.
func (g *goFinder) bound(n *ast.BinaryExpr) {
	if helper, ok := bounds[n.Op]; ok {
		m := g.mutant("bound", n)
		g.around(m, n.Pos(), n.End(), helper+"(#, ", ")")
		g.instead(m, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), ",")
	}
}

func (g *goFinder) call(n *ast.CallExpr) {
	f, ok := n.Fun.(*ast.Ident)
	if !ok {
		return
	}
	if helper, ok := map[string]string{"min": "mutantMin", "max": "mutantMax"}[f.Name]; ok {
		m := g.mutant("swap", n)
		g.around(m, n.Args[0].Pos(), n.Args[len(n.Args)-1].End(), "#, ", "")
		g.instead(m, f.Pos(), f.End(), helper)
	}
}

// embedded is how scripts get into a package.
var embedded = regexp.MustCompile(`//go:embed (\w+\.lua)\n(\s*(?:var )?\w+) string\n`)

// schemata is the source with a switch for each mutant but the broken ones, and with scripts that
// the helpers read, instead of embedded ones. No line moves.
func (f *goFile) schemata(broken map[*mutant]bool) (out string, spans []edit) {
	var edits []edit
	for _, e := range f.edits {
		if e.m == nil || !broken[e.m] {
			if e.m != nil {
				e.open = strings.Replace(e.open, "#", fmt.Sprint(e.m.id), 1)
			}
			edits = append(edits, e)
		}
	}
	for _, at := range embedded.FindAllStringSubmatchIndex(f.source, -1) {
		edits = append(edits, edit{start: at[0], end: at[1], instead: true,
			open: "//\n" + f.source[at[4]:at[5]] + " = mutantScript(`" + f.source[at[2]:at[3]] + "`)\n"})
	}
	return splice(f.source, edits)
}
