package mutants

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	luaComment = regexp.MustCompile(`(?m)(^|\s)--.*$`)
	// Where an operand or a value ends, and where a statement does, outside of brackets.
	luaOperand   = regexp.MustCompile(`\n|,|\b(?:and|or|not|if|elseif|while|then|do|end|return)\b|[^=~<>](=)[^=]`)
	luaStatement = regexp.MustCompile(`\n|\b(?:then|do|else|end)\b`)
)

// luaPlaces are what the operator could break in a Lua file, or in a local function of it: the operand,
// value or statement around each occurrence of f.At. It goes by the text, so f.At must not be inside
// brackets of what is meant.
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
	broken, ok := map[Op]string{Skip: "", Never: "false", Always: "true", Instead: f.With}[f.Op]
	if !ok {
		return nil, fmt.Errorf("no %s for Lua", f.Op)
	}
	if f.Op == Skip {
		ends = luaStatement
	}
	for from < to {
		i := strings.Index(code[from:to], f.At)
		if i < 0 {
			break
		}
		start, end := luaAround(code, from+i, from+i+len(f.At), ends)
		places = append(places, place{start, end, broken})
		from = max(end, from+i+1)
	}
	return places, nil
}

// luaAround widens what begins at start and ends at end, in both directions, to the next of the ends
// outside of brackets.
func luaAround(code string, start, end int, ends *regexp.Regexp) (int, int) {
	begins, over := map[int]bool{}, map[int]bool{}
	for _, at := range ends.FindAllStringSubmatchIndex(code, -1) {
		if len(at) > 2 && at[2] >= 0 { // a single =
			at = at[2:]
		}
		begins[at[0]], over[at[1]] = true, true
	}
	words := end
	end = start
	for depth := 0; start > 0 && (depth > 0 || !over[start]); start-- {
		if depth -= bracket(code[start-1]); depth < 0 {
			break
		}
	}
	for depth := 0; end < len(code) && (depth > 0 || end < words || !begins[end]); end++ {
		if depth += bracket(code[end]); depth < 0 {
			break
		}
	}
	text := code[start:end]
	return start + len(text) - len(strings.TrimLeft(text, " ")), end - len(text) + len(strings.TrimRight(text, " "))
}

func bracket(c byte) int {
	switch c {
	case '(', '{':
		return 1
	case ')', '}':
		return -1
	}
	return 0
}
