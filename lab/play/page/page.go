// Package page makes a page of the play: one file, which needs no server and no network.
package page

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lockstrategies/locks/lab/play"
)

//go:embed page.html
var html string

//go:embed page.css
var css string

//go:embed page.js
var script string

// Write compiles the play for a browser, with the go command (another: in the environment, GO), and writes the page. The working
// directory is one of the lab module's.
func Write(ctx context.Context, w io.Writer) error {
	dir, err := os.MkdirTemp("", "play")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "play.wasm")
	_, err = run(ctx, "build", "-trimpath", "-ldflags=-s -w", "-o", file, "github.com/lockstrategies/locks/lab/play/wasm")
	if err != nil {
		return err
	}
	root, err := run(ctx, "env", "GOROOT")
	if err != nil {
		return err
	}
	glue, err := os.ReadFile(filepath.Join(root, "lib/wasm/wasm_exec.js"))
	if err != nil {
		return err
	}
	binary, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	packed, err := pack(binary)
	if err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{"algorithms": play.Algorithms(), "scenes": play.Scenes(), "ttl": play.TTL.Milliseconds()})
	if err != nil {
		return err
	}
	_, err = strings.NewReplacer("{{css}}", css, "{{glue}}", string(glue), "{{script}}", script, "{{data}}", string(data), "{{wasm}}", packed).
		WriteString(w, html)
	return err
}

// pack is gzip, in base64.
func pack(binary []byte) (string, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	if _, err := z.Write(binary); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), nil
}

// run runs the go command for a browser, and returns what it says.
func run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, cmp.Or(os.Getenv("GO"), "go"), args...)
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOFLAGS=", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}
