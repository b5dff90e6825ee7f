package ctrd

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/ipamd/ipamd/census"
)

// After a loss the first attempt follows soon and the later ones within a
// second of each other, so that a reading begins within a second of
// containerd's return. Asking a closed socket costs next to nothing.
const (
	firstWait = 20 * time.Millisecond
	lastWait  = 800 * time.Millisecond
)

var errStopped = errors.New("is no longer followed")

// Run follows containerd until ctx ends or the witness is closed; it returns
// nil then, and leaves the witness silent and no goroutine behind. While
// containerd is away it tries again and again.
func (w *Witness) Run(ctx context.Context) error {
	w.runs.Add(1)
	defer w.runs.Done()
	ctx, cancel := w.until(ctx)
	defer cancel()
	wait := firstWait
	for {
		err := w.follow(ctx, func() { wait = firstWait })
		if ctx.Err() != nil {
			err = errStopped
		}
		_ = w.take(context.WithoutCancel(ctx)) // the holder gives it back within a timeout
		w.following = false
		w.silence(err)
		w.give()

		pause := time.NewTimer(wait/2 + rand.N(wait/2))
		wait = min(wait*2, lastWait)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-w.again:
			pause.Stop()
		case <-pause.C:
		}
	}
}

// follow lives as long as one connection, and returns why it ended. It calls
// works once it follows.
func (w *Witness) follow(ctx context.Context, works func()) error {
	c, err := w.open()
	if err != nil {
		return err
	}
	defer c.Close()
	s := w.subscribe(ctx, c)
	defer s.close()
	if err := w.whole(ctx, c, s); err != nil {
		return err
	}
	works()
	every := time.NewTicker(w.cfg.Every)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ended:
			return s.err
		case <-every.C:
			err = w.whole(ctx, c, s)
		case <-w.again:
			err = w.whole(ctx, c, s)
		case <-s.wakeup:
			err = w.heed(ctx, c, s)
		}
		if err != nil {
			return err
		}
	}
}

// whole makes a whole reading behind a stream that is proven alive, so that
// nothing can change unnoticed between the two.
func (w *Witness) whole(ctx context.Context, c *containerd.Client, s *stream) error {
	proof, cancel := w.ask(ctx, "")
	defer cancel()
	if err := s.prove(proof, c); err != nil {
		return err
	}
	if err := w.take(ctx); err != nil {
		return err
	}
	defer w.give()
	if err := w.read(ctx, c); err != nil {
		return err
	}
	w.following = true
	w.logConnected()
	return nil
}

// heed looks at what the stream speaks of. What it speaks of meanwhile is
// looked at afterwards, again if need be.
func (w *Witness) heed(ctx context.Context, c *containerd.Client, s *stream) error {
	at, all := s.take()
	if err := w.take(ctx); err != nil {
		return err
	}
	defer w.give()
	if all {
		clear(w.taskless) // what it speaks of may be any of them
		return w.read(ctx, c)
	}
	return w.lookAgain(ctx, c, at)
}

// silence says on the board that containerd could not be asked, and in the
// log when that is news; the caller holds posting.
func (w *Witness) silence(reason error) {
	reason = w.inWords(reason)
	w.cfg.Board.Silence(census.Runtime, reason)
	w.news.Send()
	if w.logged != lost && !errors.Is(reason, errStopped) {
		w.cfg.Log.Warn("containerd is lost: its containers keep their addresses", "socket", w.cfg.Address, "reason", reason)
		w.logged = lost
	}
}

func (w *Witness) logConnected() {
	if w.logged != connected {
		w.cfg.Log.Info("containerd is followed", "socket", w.cfg.Address, "namespaces", strings.Join(w.cfg.Namespaces, ","))
		w.logged = connected
	}
}

func (w *Witness) logUnread(unread []string, silencing int) {
	slices.Sort(unread)
	if slices.Equal(unread, w.unread) {
		return
	}
	w.unread = unread
	if reason := unreadable(unread); reason != nil {
		w.cfg.Log.Warn("labels cannot be read: what they claim is not known", "labels", len(unread), "silencing", silencing, "reason", reason)
	} else {
		w.cfg.Log.Info("all labels can be read again")
	}
}
