package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/logging"
	"github.com/ipamd/ipamd/netdb"
)

func (c *command) rebuildCommand() *cobra.Command {
	var preview, force bool
	var output string
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Make a new book where the old one is broken",
		Long: `Makes a new lease book, with a new epoch, from what the kernel and the container
runtime show, and moves the broken one aside: book.db becomes
book.db.broken-<time>, with its log. Nothing is deleted and nobody is asked.

Who is seen to live gets his lease back, under the id that his label or what
can be read of the old book names. Addresses that the old book kept back stay
out of use: what cooled cools anew, what was held or let go is quarantined
until it was dark for long enough, and the address of a sandbox that slept is
quarantined until somebody clears it. History and tombstones stay in the old
file. What could not be explained is told.

It refuses, and changes nothing, while a daemon has the book or the bridge,
while a witness cannot answer, when the book is whole or there is none, and
when it is another runner's. One that was cut short is finished by running it
again; until then the daemon does not start. Where bridge.manage is true it
makes or mends the bridge, as the daemon does.

Exit codes: 0 rebuilt, whatever was found; 1 refused, or it could not go on;
2 the command line or the configuration is wrong.`,
		Example: `  ipamd rebuild --preview               what it would do; changes nothing
  ipamd rebuild && ipamd run
  ipamd rebuild -o json > rebuilt.json  for a program: see "unexplained"
  ipamd rebuild --force                 although the book is whole, or nothing in it can be read`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usageError{fmt.Errorf("-o is text or json, not %q", output)}
			}
			cfg, _, err := c.load(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			cfg.Log.Level = "warn" // the report tells the rest
			r := rebuild{cfg: cfg, log: logging.New(cfg.Log.Format, logging.Level(cfg.Log.Level), c.err, os.Getenv), preview: preview, force: force}
			report, err := r.run(cmd.Context())
			if err != nil {
				return fmt.Errorf("rebuild %s: %w", cfg.Book.Path, err)
			}
			if output == "json" {
				return report.json(c.out)
			}
			return report.text(c.out)
		},
	}
	c.configFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&preview, "preview", false, "tell what would be done, and change nothing")
	f.BoolVar(&force, "force", false, "also when the book is whole, or when nothing of a lease book can be read in it")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// A rebuild is one run of the verb.
type rebuild struct {
	cfg            config.Config
	log            *slog.Logger
	preview, force bool
	netns          string // of the bridge; "" is the process's own. Tests set it.
}

// run rebuilds the book. After an error the old one is in its place, or the
// error says that running again finishes.
func (r *rebuild) run(ctx context.Context) (*rebuilt, error) {
	path, err := netdb.RealPath(r.cfg.Book.Path)
	if err != nil {
		return nil, noBook(err)
	}
	r.cfg.Book.Path = path
	s := swap{path}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return nil, noBook(err)
	}
	lock, err := s.lock(unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	switch cut, err := s.cut(); {
	case err != nil:
		return nil, err
	case cut && r.preview:
		return nil, errors.New("one was cut short behind the point where anything is left to decide; it is finished by running it without --preview")
	case cut:
		return r.finish(s)
	}
	why, err := r.reason()
	if err != nil {
		return nil, err
	}
	old, err := r.salvage(errors.Is(why, netdb.ErrNotABook))
	if err != nil {
		return nil, err
	}
	at := s.rebuilding()
	if r.preview {
		dir, err := os.MkdirTemp("", "ipamd-preview-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		at = filepath.Join(dir, "book.db")
	} else if err := s.discard(); err != nil {
		return nil, err
	}
	report, err := r.build(ctx, at, old)
	if err == nil {
		report.Book, report.Preview, report.Broken, report.WasEpoch = path, r.preview, why.Error(), old.Epoch
	}
	if r.preview {
		return report, err
	}
	if err == nil {
		report.Aside, err = s.finish(netdb.Now().Wall)
	}
	if err == nil {
		return report, nil
	}
	if cut, _ := s.cut(); cut { // moved aside already: what is new is all there is
		return nil, fmt.Errorf("%w; running it again finishes it", err)
	}
	return nil, errors.Join(err, s.discard())
}

func noBook(err error) error {
	return fmt.Errorf(`%w; there is no book: "ipamd run" makes one, and adopts who is live`, err)
}

// errWhole is the reason to rebuild that only force accepts.
var errWhole = errors.New("the book was whole")

// reason says what is wrong with the book, or why it cannot be rebuilt.
func (r *rebuild) reason() (why, err error) {
	path := r.cfg.Book.Path
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		if log, err := exists(path + "-wal"); err != nil || log {
			return fmt.Errorf("%w: its log is there, and the book itself is not", netdb.ErrDamaged), err
		}
		return nil, noBook(err)
	}
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 && !r.force {
		return nil, noBook(errors.New("the file is empty"))
	}
	opts := r.cfg.BookOptions()
	opts.ReadOnly = true
	book, err := netdb.Open(path, opts)
	for _, broken := range []error{netdb.ErrDamaged, netdb.ErrNotABook} {
		if errors.Is(err, broken) {
			return broken, nil
		}
	}
	if err != nil {
		return nil, err
	}
	found, err := book.Check(context.Background())
	if err := errors.Join(err, book.Close()); err != nil {
		return nil, err
	}
	switch {
	case len(found) > 0:
		return fmt.Errorf("%w: %d violations, as %s", netdb.ErrDamaged, len(found), found[0]), nil
	case !r.force:
		return nil, errors.New(`it is whole ("ipamd check" says the same); a new one would lose its history, its tombstones and whose turn it is. --force makes it all the same`)
	}
	return errWhole, nil
}

// salvage reads what it can of the old book. In a file that need not have been
// one, a page that can be read is asked for: it may be another program's.
func (r *rebuild) salvage(strange bool) (netdb.Salvaged, error) {
	path := r.cfg.Book.Path
	old, err := netdb.Salvage(path)
	if errors.Is(err, os.ErrNotExist) {
		old.Problems, err = append(old.Problems, "the book itself is not there, only its log, in which nothing can be read without it"), nil
	}
	if err != nil {
		return old, err
	}
	if strange && !r.force && old.Epoch == "" && len(old.Leases) == 0 && len(old.Named) == 0 {
		return old, errors.New("nothing of a lease book can be read in it, so it may be another program's; if it was the book, --force moves it aside")
	}
	return old, nil
}

// finish moves in what an earlier run had made and could not move.
func (r *rebuild) finish(s swap) (*rebuilt, error) {
	aside, err := s.finish(netdb.Now().Wall)
	if err != nil {
		return nil, err
	}
	opts := r.cfg.BookOptions()
	opts.ReadOnly = true
	book, err := netdb.Open(s.path, opts)
	if err != nil {
		return nil, err
	}
	defer book.Close()
	out := tellOf(book)
	out.Book, out.Finished, out.Aside = s.path, true, s.movedAside()
	if aside != "" && aside != out.Aside {
		out.Unexplained = append(out.Unexplained, "the old book's log was moved for itself, to "+aside)
	}
	return out, nil
}
