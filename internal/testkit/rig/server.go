package rig

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kill ends the server with SIGKILL: its connections end, and new ones are refused,
// through links too. A second Kill does nothing. One that keeps an append-only file is
// given the time to write, not to sync, what it has answered: behind a slow sync Redis
// puts that off for up to two seconds, and then the death of a process can lose what only
// a power loss should. One that is frozen is not given it.
func (n *Node) Kill(ctx context.Context) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	return n.kill(ctx)
}

func (n *Node) kill(ctx context.Context) error {
	s := n.serving()
	if !s.Dead() && !s.Frozen() {
		if err := n.written(ctx, s); err != nil && ctx.Err() != nil {
			return err // of one that does not answer there is nothing to wait for
		}
	}
	n.setDown(true) // first: a link would accept what the dead server's kernel refuses
	if err := s.Kill(ctx); err != nil {
		n.setDown(s.Dead())
		return fmt.Errorf("rig: %w", err)
	}
	return nil
}

// written waits until all that the server has answered is in its append-only file, if it
// has one.
func (n *Node) written(ctx context.Context, s *server) error {
	if s.fsync == "" && s.settings["appendonly"] != "yes" {
		return nil
	}
	return poll(ctx, "writing at "+s.Addr(), func() (bool, error) {
		p, err := s.Info(ctx, "persistence")
		return p["aof_buffer_length"] == "0" || p["aof_enabled"] == "0", err
	})
}

// Restart starts the server again, with the data that its persistence has kept, which
// is none unless Config or Persist says otherwise, and without what CONFIG SET and ACL
// SETUSER had changed. One that still runs is killed first.
func (n *Node) Restart(ctx context.Context) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	return n.restart(ctx)
}

func (n *Node) restart(ctx context.Context) error {
	if err := n.kill(ctx); err != nil {
		return err
	}
	s := n.serving()
	if err := s.Restart(ctx); err != nil {
		return fmt.Errorf("rig: %w", err)
	}
	n.serve(s)
	return nil
}

// Freeze stops the server's process: connections stay, and the kernel accepts more, but
// nothing answers. Time goes on.
func (n *Node) Freeze(ctx context.Context) error { return wrap(n.Server().Freeze(ctx)) }

// Thaw lets a frozen server go on, with whatever it was sent in the meantime.
func (n *Node) Thaw(ctx context.Context) error { return wrap(n.Server().Thaw(ctx)) }

func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("rig: %w", err)
	}
	return nil
}

// Persist makes the server keep an append-only file until Reset, synced as fsync says:
// "always", "everysec", or "no", which leaves it to the kernel. Once it returns, all keys
// are in the file, and a Restart finds them. What is written later is there when it is
// answered, but for everysec: a server whose disk is slow then answers first, as it postpones
// the write, by two seconds at most, while a sync is under way.
func (n *Node) Persist(ctx context.Context, fsync string) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	return n.persist(ctx, n.serving(), fsync)
}

func (n *Node) persist(ctx context.Context, s *server, fsync string) error {
	if fsync != "always" && fsync != "everysec" && fsync != "no" {
		return fmt.Errorf("rig: fsync %q: allowed are always, everysec and no", fsync)
	}
	s.fsync = fsync // first: Reset undoes what was only begun
	// The effect of CONFIG SET ends with the process, and a server that is started without
	// append-only file would not read it. So the next start gets the settings, too.
	if err := s.Put(ctx, map[string][]byte{overrides: []byte("appendonly yes\nappendfsync " + fsync + "\n")}); err != nil {
		return wrap(err)
	}
	for _, setting := range [][2]string{{"appendfsync", fsync}, {"appendonly", "yes"}} {
		if err := n.tell(ctx, s, "CONFIG", "SET", setting[0], setting[1]); err != nil {
			return err
		}
	}
	// Until the first rewrite is over a restart would find nothing.
	return poll(ctx, "the append-only file of "+s.Addr(), func() (bool, error) {
		p, err := s.Info(ctx, "persistence")
		return p["aof_enabled"] == "1" && p["aof_rewrite_in_progress"] == "0" && p["aof_rewrite_scheduled"] == "0" &&
			p["aof_last_bgrewrite_status"] == "ok", err
	})
}

// Unpersist ends the append-only file that Persist has begun: what is written from now on
// a Restart does not find, nor what was written before.
func (n *Node) Unpersist(ctx context.Context) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	s := n.serving()
	if err := s.Put(ctx, map[string][]byte{overrides: []byte("# nothing\n")}); err != nil {
		return wrap(err)
	}
	if err := n.tell(ctx, s, "CONFIG", "SET", "appendonly", "no"); err != nil {
		return err
	}
	s.fsync = ""
	return nil
}

// everySecond is the most that a power loss may take from an append-only file that is
// synced every second.
const everySecond = time.Second

// ErrStale is the refusal of a checkpoint that is older than what a power loss can undo,
// or of a mark up to which, or beyond which, the server says to have synced otherwise. The
// server goes on with all that it has; take another one.
var ErrStale = errors.New("rig: the disk would have something else by now: what was written more than a second ago, or synced since, is not lost")

// A Checkpoint is what a disk is going to hold after a power loss: all writes answered
// before it was taken, and none that began after.
type Checkpoint struct {
	server *server
	run    string
	at     time.Time
	files  map[string][]byte
}

// Checkpoint copies the data directory of a server that syncs every second, for a
// PowerLoss within the next second.
func (n *Node) Checkpoint(ctx context.Context) (*Checkpoint, error) {
	n.changing.Lock()
	defer n.changing.Unlock()
	s := n.serving()
	if s.fsync != "everysec" {
		return nil, fmt.Errorf("rig: checkpoint of %s: only what is synced every second loses what was answered: call Persist with everysec first", s.Addr())
	}
	run, err := n.run(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := n.written(ctx, s); err != nil {
		return nil, err
	}
	at := time.Now()
	files, err := s.Files(ctx)
	if err != nil {
		return nil, wrap(err)
	}
	return &Checkpoint{server: s, run: run, at: at, files: files}, nil
}

// run is what the server calls this run of itself.
func (n *Node) run(ctx context.Context, s *server) (string, error) {
	i, err := s.Info(ctx, "server")
	return i["run_id"], err
}

// PowerLoss restarts the server as if its machine had lost power. It is an emulation:
// the process is killed, and its data directory put back as it was at the checkpoint.
// The loss comes when PowerLoss is called; what was answered in the second before it may
// be lost, what is older may not, so a checkpoint that is older than that is refused
// with ErrStale. What was synced before each answer, or never, needs no checkpoint, and
// nil is then the only one allowed: with "always" nothing that was answered is lost.
func (n *Node) PowerLoss(ctx context.Context, c *Checkpoint) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	s := n.serving()
	if c == nil {
		switch s.fsync {
		case "everysec":
			return fmt.Errorf("rig: power loss of %s, which is synced every second: say by a Checkpoint what is lost", s.Addr())
		case "no":
			return fmt.Errorf("rig: power loss of %s, which is synced when the kernel likes: call Persist with always or everysec", s.Addr())
		}
		return n.restart(ctx)
	}
	if run, err := n.run(ctx, s); err != nil {
		return err
	} else if s != c.server || s.fsync != "everysec" || run != c.run {
		return fmt.Errorf("rig: power loss of %s: the checkpoint is not of this run of this server", s.Addr())
	}
	// From here on it writes nothing any more, however long its death takes.
	if err := n.tell(ctx, s, "CLIENT", "PAUSE", patience.Milliseconds(), "WRITE"); err != nil {
		return err
	}
	if time.Since(c.at) > everySecond {
		return errors.Join(ErrStale, n.tell(ctx, s, "CLIENT", "UNPAUSE"))
	}
	if err := n.kill(ctx); err != nil {
		return err // still paused, perhaps; that ends by itself
	}
	if err := s.Put(ctx, c.files); err != nil {
		return wrap(err)
	}
	return n.restart(ctx)
}
