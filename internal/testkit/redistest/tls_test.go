package redistest

// Servers behind TLS and Unix sockets, and the certificates for them.

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// TestLocalFiles: they are there when the server starts, on this machine and for Files, and so
// is what the server makes of them; a socket is no such file.
func TestLocalFiles(t *testing.T) {
	eachKind(t, func(t *testing.T, f *Farm) {
		c := Config{Files: map[string][]byte{"a": []byte("1")}, Args: []string{"--unixsocket", "b b", "--unixsocketperm", "777"}}
		s := start(t, f, c)
		path := filepath.Join(s.Dir(), "b b")
		conn, err := redis.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Do("PING"); err != nil {
			t.Errorf("PING by the socket = %v", err)
		}
		files, err := s.Files(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if string(files["a"]) != "1" || files["b b"] != nil {
			t.Errorf("files = %q, want a, and no socket", files)
		}
		if plain := start(t, f, Config{}); plain.Dir() != "" {
			t.Errorf("Dir of a server without files = %q, want none", plain.Dir())
		}
		dir := s.Dir()
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("after Stop: Stat(%s) = %v, want that there is none", dir, err)
		}
	})
}
