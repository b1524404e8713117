package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A luaToken is a word, a number, a string or a sign.
type luaToken struct {
	text       string
	start, end int
}

var luaWords = regexp.MustCompile(`(?s)--[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|\d[\w.]*|\.\.\.?|[=~<>]=|[^\s]`)

// mutateLua finds the mutants of a Lua source. It knows as much of the grammar as it takes to tell
// where statements and conditions begin and end in scripts that have local functions and no repeat.
func mutateLua(path, source string) []*mutant {
	p := &luaParser{path: path, source: source}
	for _, at := range luaWords.FindAllStringIndex(source, -1) {
		if text := source[at[0]:at[1]]; !strings.HasPrefix(text, "--") {
			p.tokens = append(p.tokens, luaToken{text, at[0], at[1]})
		}
	}
	p.tokens = append(p.tokens, luaToken{"", len(source), len(source)})
	p.block(true)
	slices.SortStableFunc(p.mutants, func(a, b *mutant) int { return a.line - b.line })
	return p.mutants
}

type luaParser struct {
	path    string
	source  string
	mutants []*mutant
	tokens  []luaToken
	next    int
	fn      string
}

func (p *luaParser) peek() string { return p.tokens[p.next].text }

// is reports whether the next token is one of these, and takes it.
func (p *luaParser) is(words ...string) bool {
	if slices.Contains(words, p.peek()) && p.peek() != "" {
		p.next++
		return true
	}
	return false
}

func (p *luaParser) want(word string) {
	if !p.is(word) {
		panic(fmt.Sprintf("%s: %q at byte %d, want %q", p.path, p.peek(), p.tokens[p.next].start, word))
	}
}

// span is the source from one token to before another.
func (p *luaParser) span(first, end int) (start, stop int) {
	return p.tokens[first].start, p.tokens[end-1].end
}

// mutant replaces the tokens from first to before end.
func (p *luaParser) mutant(op string, first, end int, text, with string) {
	start, stop := p.span(first, end)
	if text == "" {
		text = p.source[start:stop]
	}
	p.mutants = append(p.mutants, &mutant{
		file: p.path, fn: p.fn, op: op, text: oneLine(text), line: 1 + strings.Count(p.source[:start], "\n"),
		from: 1, to: 1 + strings.Count(p.source, "\n"), script: p.source[:start] + with + p.source[stop:],
	})
}

func (p *luaParser) block(outermost bool) (statements int) {
	for !p.ended() {
		statements++
		p.statement(outermost)
		p.is(";")
	}
	return statements
}

func (p *luaParser) ended() bool {
	return slices.Contains([]string{"", "end", "else", "elseif"}, p.peek())
}

// statement parses one, and drops it, unless it makes a local variable or is the return that ends a function.
func (p *luaParser) statement(outermost bool) {
	first := p.next
	switch {
	case p.is("local"):
		if !p.is("function") {
			p.expressions()
			return
		}
		p.fn = p.peek()
		p.next++
		p.body()
		p.fn = ""
		return
	case p.is("if"):
		p.branches()
	case p.is("while"):
		p.condition()
		p.want("do")
		p.block(false)
		p.want("end")
	case p.is("for"):
		for !p.is("do") {
			p.expressions()
			p.is("in")
		}
		p.block(false)
		p.want("end")
	case p.is("return"):
		if !p.ended() {
			p.expressions()
		}
		if outermost && p.ended() {
			return
		}
	case p.is("break"):
	default:
		p.expressions()
	}
	p.mutant("drop", first, p.next, "", "")
}

// body parses the parameters and the rest of a function.
func (p *luaParser) body() {
	for !p.is(")") {
		p.next++
	}
	p.block(true)
	p.want("end")
}

// branches parses an if after its keyword. If it has one branch, of one statement, dropping that one
// would be the same as dropping the if.
func (p *luaParser) branches() {
	p.condition()
	p.want("then")
	first := p.next
	if p.block(false) == 1 && p.peek() == "end" {
		start, stop := p.span(first, p.next)
		p.mutants = slices.DeleteFunc(p.mutants, func(m *mutant) bool { return m.script == p.source[:start]+p.source[stop:] })
	}
	for p.is("elseif") {
		p.condition()
		p.want("then")
		p.block(false)
	}
	if p.is("else") {
		p.block(false)
	}
	p.want("end")
}

func (p *luaParser) expressions() {
	for {
		p.expression(false)
		if !p.is(",", "=") {
			return
		}
	}
}

func (p *luaParser) condition() { p.expression(true) }

// expression parses operands and the operators between them, and negates what must be true or false:
// comparisons, what stands before an and, and in a condition every operand.
func (p *luaParser) expression(condition bool) {
	for {
		first := p.next
		compares, groups := p.comparison(condition)
		if !groups && (compares || condition || p.peek() == "and") {
			start, stop := p.span(first, p.next)
			p.mutant("negate", first, p.next, "", "not ("+p.source[start:stop]+")")
		}
		if !p.is("and", "or") {
			return
		}
	}
}

var luaBounds = map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}

// comparison parses an expression that has neither "and" nor "or". groups says that it is one in brackets, or the not of one.
func (p *luaParser) comparison(condition bool) (compares, groups bool) {
	for {
		p.is("not")
		for p.is("not", "-", "#") {
		}
		if p.is("(") {
			p.expression(condition)
			p.want(")")
			groups = !slices.Contains([]string{"..", "+", "-", "*", "/", "%", ":", ".", "[", "==", "~=", "<", "<=", ">", ">="}, p.peek())
		} else {
			p.next++
			switch p.tokens[p.next-1].text {
			case "function":
				p.body()
			case "{":
				p.fields("}")
			}
		}
		p.suffixes()
		op := p.next
		switch {
		case p.is("==", "~="):
			compares = true
		case p.is("<", "<=", ">", ">="):
			compares = true
			p.mutant("bound", op, op+1, p.around(op), luaBounds[p.tokens[op].text])
		case p.is("..", "+", "-", "*", "/", "%", "^"):
		default:
			return compares, groups
		}
	}
}

// around is the line that a token is in.
func (p *luaParser) around(token int) string {
	start := strings.LastIndexByte(p.source[:p.tokens[token].start], '\n') + 1
	line, _, _ := strings.Cut(p.source[start:], "\n")
	return line
}

// suffixes parses the fields, indices and calls after an operand.
func (p *luaParser) suffixes() {
	for {
		name := p.next - 1
		switch {
		case p.is(".", ":"):
			p.next++
		case p.is("["):
			p.expression(false)
			p.want("]")
		case p.is("("):
			first := p.next
			p.fields(")")
			p.call(name, first, p.next-1)
		default:
			return
		}
	}
}

func (p *luaParser) fields(end string) {
	for !p.is(end) {
		if p.is("[") {
			p.expression(false)
			p.want("]")
			p.want("=")
		}
		p.expression(false)
		p.is(",", ";", "=")
	}
}

// options are arguments of Redis commands that need not be there, and how many more each takes.
var options = map[string]int{
	"NX": 0, "XX": 0, "GT": 0, "LT": 0, "KEEPTTL": 0, "GET": 0,
	"PX": 1, "EX": 1, "PXAT": 1, "COUNT": 1, "MATCH": 1,
}

var optionLiteral = regexp.MustCompile(`^["'\x60]([A-Z]+)["'\x60]$`)

// call swaps min and max, and leaves out options. name is the token before the bracket, the arguments are
// from first to before end.
func (p *luaParser) call(name, first, end int) {
	if other, ok := map[string]string{"min": "max", "max": "min"}[p.tokens[name].text]; ok {
		p.mutant("swap", name, name+1, p.around(name), other)
	}
	for i := first; i < end; i++ {
		found := optionLiteral.FindStringSubmatch(p.tokens[i].text)
		if found == nil || p.tokens[i-1].text != "," {
			continue
		}
		more, ok := options[found[1]]
		if !ok {
			continue
		}
		stop := i + 1
		if more > 0 { // the option's value ends before the next comma
			depth := 0
			for stop++; stop < end && (depth > 0 || p.tokens[stop].text != ","); stop++ {
				switch p.tokens[stop].text {
				case "(", "{", "[":
					depth++
				case ")", "}", "]":
					depth--
				}
			}
		}
		from, to := p.span(i, stop)
		p.mutant("omit", i-1, stop, p.source[from:to]+" of "+p.around(name), "")
	}
}
