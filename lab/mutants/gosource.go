package mutants

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
)

// goPlaces are what the operator could break in a function of a Go file.
func goPlaces(source, name string, f Fault) ([]place, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, 0)
	if err != nil {
		return nil, err
	}
	g := &goFinder{source: source, fault: f, offset: func(p token.Pos) int { return files.Position(p).Offset }}
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && funcName(fn) == name {
			ast.Inspect(fn.Body, g.look)
			return g.places, nil
		}
	}
	return nil, fmt.Errorf("there is no function %s", name)
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
	source string
	fault  Fault
	offset func(token.Pos) int
	places []place
}

func (g *goFinder) text(n ast.Node) string { return g.source[g.offset(n.Pos()):g.offset(n.End())] }

func (g *goFinder) add(n ast.Node, broken string) {
	g.places = append(g.places, place{g.offset(n.Pos()), g.offset(n.End()), broken})
}

func (g *goFinder) look(n ast.Node) bool {
	switch g.fault.Op {
	case Skip:
		for _, s := range statements(n) {
			if a, ok := s.(*ast.AssignStmt); !ok || a.Tok != token.DEFINE {
				g.add(s, "if false { "+g.text(s)+" }") // what it names stays in use
			}
		}
	case Never:
		for _, c := range conditions(n) {
			g.add(c, "(false && ("+g.text(c)+"))")
		}
	case Always:
		for _, c := range conditions(n) {
			g.add(c, "(true || ("+g.text(c)+"))")
		}
	case Swap:
		g.swap(n)
	case Instead:
		for _, v := range append(values(n), conditions(n)...) {
			g.add(v, g.fault.With)
		}
	}
	return true
}

// swap replaces the operator of an expression, or the name of a function that is called.
func (g *goFinder) swap(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if other, ok := neighbours[n.Op.String()]; ok {
			g.add(n, g.text(n.X)+" "+other+" "+g.text(n.Y))
		}
	case *ast.CallExpr:
		name, before := n.Fun, ""
		if s, ok := n.Fun.(*ast.SelectorExpr); ok {
			name, before = s.Sel, g.text(s.X)+"."
		}
		if other, ok := neighbours[g.text(name)]; ok {
			g.add(n, before+other+g.source[g.offset(name.End()):g.offset(n.End())])
		}
	}
}

// statements are those directly in n.
func statements(n ast.Node) []ast.Stmt {
	switch n := n.(type) {
	case *ast.BlockStmt:
		return n.List
	case *ast.CaseClause:
		return n.Body
	case *ast.CommClause:
		return n.Body
	}
	return nil
}

// conditions are the expressions directly in n that must be true or false: also both sides of && and ||.
func conditions(n ast.Node) (all []ast.Expr) {
	switch n := n.(type) {
	case *ast.IfStmt:
		return []ast.Expr{n.Cond}
	case *ast.ForStmt:
		if n.Cond != nil {
			return []ast.Expr{n.Cond}
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				all = append(all, c.(*ast.CaseClause).List...)
			}
		}
	case *ast.BinaryExpr:
		if n.Op == token.LAND || n.Op == token.LOR {
			return []ast.Expr{n.X, n.Y}
		}
	case *ast.ReturnStmt:
		return n.Results // if they are of that kind
	case *ast.AssignStmt:
		return n.Rhs
	}
	return all
}

// values are the arguments directly in n, or what it assigns, returns or calls.
func values(n ast.Node) (all []ast.Expr) {
	switch n := n.(type) {
	case *ast.ExprStmt:
		return []ast.Expr{n.X}
	case *ast.CallExpr:
		return n.Args
	case *ast.AssignStmt:
		return n.Rhs
	case *ast.ReturnStmt:
		return n.Results
	case *ast.CompositeLit:
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				e = kv.Value
			}
			all = append(all, e)
		}
	case *ast.RangeStmt:
		return []ast.Expr{n.X}
	}
	return all
}
