// Package quotes holds documents to the sources: a block of code that says which file it is
// from stands in that file, line by line.
package quotes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Check reads a document. Before each of its blocks of code that have a language, but for sh,
// which is to be typed, a line must say where it is from, as a path from the document's folder:
//
//	<!-- from ../election/election.go -->
//
// and all of the block's lines must stand there, one after the other, indented as there or
// by up to two tabs less. from returns how many blocks each file has given.
func Check(doc string) (from map[string]int, err error) {
	text, err := os.ReadFile(doc)
	if err != nil {
		return nil, err
	}
	from = map[string]int{}
	var errs []error
	source, block := "", []string(nil)
	inside, code := false, false
	for i, line := range strings.Split(string(text), "\n") {
		language, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && !inside:
			inside, code, block = true, language != "" && language != "sh", nil
			if code && source == "" {
				errs = append(errs, fmt.Errorf("%s:%d: the block of code does not say what file it is from", doc, i+1))
			}
		case isFence:
			if code && source != "" {
				from[source]++
				if err := stands(block, filepath.Join(filepath.Dir(doc), source)); err != nil {
					errs = append(errs, fmt.Errorf("%s: the block that ends in line %d: %w", doc, i+1, err))
				}
			}
			inside, source = false, ""
		case inside:
			block = append(block, line)
		case line != "":
			source = ""
			if file, ok := strings.CutPrefix(line, "<!-- from "); ok {
				source = strings.TrimSuffix(file, " -->")
			}
		}
	}
	return from, errors.Join(errs...)
}

// stands reports whether the lines stand in the file, all indented by as many tabs.
func stands(block []string, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for tabs := range 3 {
		var b strings.Builder
		b.WriteString("\n")
		for _, line := range block {
			if line != "" {
				line = strings.Repeat("\t", tabs) + line
			}
			b.WriteString(line + "\n")
		}
		if strings.Contains("\n"+string(text), b.String()) {
			return nil
		}
	}
	return fmt.Errorf("not in %s as it is in the document:\n%s", file, strings.Join(block, "\n"))
}
