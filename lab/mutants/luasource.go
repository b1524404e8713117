package mutants

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	luaComment = regexp.MustCompile(`(?m)(^|\s)--.*$`)
	luaOpens   = regexp.MustCompile(`[({]`)
	luaCloses  = regexp.MustCompile(`[)}]`)
	// Where an operand or a value ends, and where a statement does, outside of brackets.
	luaOperand   = regexp.MustCompile(`\n|,|\b(?:and|or|not|if|elseif|while|then|do|end|return)\b|(?:^|[^=~<>])(=)(?:[^=]|$)`)
	luaStatement = regexp.MustCompile(`\n|\b(?:then|do|else|end)\b`)
)

// luaPlaces are what the operator could break in a Lua file, or in a local function of it: each
// occurrence of f.At is at the start of one, or inside it and outside of brackets.
func luaPlaces(source, name string, f Fault) (places []place, err error) {
	code := luaComment.ReplaceAllStringFunc(source, func(c string) string { return strings.Repeat(" ", len(c)) })
	from, to := 0, len(code)
	if name != "" {
		if from = strings.Index(code, "local function "+name+"("); from < 0 {
			return nil, fmt.Errorf("there is no function %s", name)
		}
		to = from + strings.Index(code[from:], "\nend")
	}
	ends := luaOperand
	if f.Op == Skip {
		ends = luaStatement
	}
	for from < to {
		i := strings.Index(code[from:to], f.At)
		if i < 0 {
			break
		}
		p := luaAround(code, from+i, len(f.At), ends)
		text := source[p.start:p.end]
		switch f.Op {
		case Skip:
			p.broken = ""
		case Never:
			p.broken = "false"
		case Always:
			p.broken = "true"
		case Instead:
			p.broken = f.With
		case Swap:
			p.broken = luaSwap(text)
		}
		places = append(places, p)
		from = max(p.end, from+i+1)
	}
	return places, nil
}

// luaAround finds the operand, value or statement around the words at i: it goes on in both directions
// to the next end outside of brackets.
func luaAround(code string, i, n int, ends *regexp.Regexp) place {
	p := place{start: i, end: i}
	stops := map[int]int{} // where an end begins, and where it is over
	for _, at := range ends.FindAllStringSubmatchIndex(code, -1) {
		if len(at) > 2 && at[2] >= 0 { // a single =
			at = at[2:4]
		}
		stops[at[0]] = at[1]
	}
	over := map[int]bool{}
	for _, end := range stops {
		over[end] = true
	}
	for depth := 0; p.start > 0 && (depth > 0 || !over[p.start]); p.start-- {
		switch c := code[p.start-1 : p.start]; {
		case luaCloses.MatchString(c):
			depth++
		case luaOpens.MatchString(c):
			depth--
		}
		if depth < 0 {
			break
		}
	}
	for depth := 0; p.end < len(code); p.end++ {
		if _, stop := stops[p.end]; stop && depth == 0 && p.end >= i+n {
			break
		}
		switch c := code[p.end : p.end+1]; {
		case luaOpens.MatchString(c):
			depth++
		case luaCloses.MatchString(c):
			depth--
		}
		if depth < 0 {
			break
		}
	}
	p.start += len(code[p.start:p.end]) - len(strings.TrimLeft(code[p.start:p.end], " \n"))
	p.end -= len(code[p.start:p.end]) - len(strings.TrimRight(code[p.start:p.end], " \n"))
	return p
}

var luaOperator = regexp.MustCompile(`[<>]=?|\bmin\b|\bmax\b`)

// luaSwap replaces the first comparison, min or max.
func luaSwap(text string) string {
	at := luaOperator.FindStringIndex(text)
	if at == nil {
		return text
	}
	return text[:at[0]] + neighbours[text[at[0]:at[1]]] + text[at[1]:]
}
