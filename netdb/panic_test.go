package netdb_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// F6: a panic at any point of a commit leaves no lock taken and no caller without
// an answer, and what memory has is what the file has, restart or not: all that
// was answered, and nothing that was refused.
func TestF6APanicInACommit(t *testing.T) {
	const callers = 8
	for point, want := range map[string]struct {
		durable bool // what the batch asked for
		panics  int  // callers who meet it
	}{
		"store":   {false, callers}, // each is tried alone, and meets it alone
		"publish": {true, 1},        // the caller who committed
		"commit":  {true, 1},        // OnCommit's
		"prune":   {true, 0},        // behind the answers
	} {
		t.Run(point, func(t *testing.T) {
			var armed atomic.Bool
			strike := func(at string) {
				if at == point && armed.Load() {
					if point != "store" {
						armed.Store(false)
					}
					panic("struck at " + at)
				}
			}
			opts, path := netdb.Failing(Options(), strike), filepath.Join(t.TempDir(), "book.db")
			opts.KeepChanges = 10
			opts.OnCommit = func(time.Duration, int) { strike("commit") }
			b := OpenAt(t, path, opts)
			p := Pool(t, b, "default", "10.8.64.0/24")
			if point == "prune" { // it comes with the revision
				for i := 0; b.Rev() < 126; i++ {
					Reserve(t, b, fmt.Sprint("before", i))
				}
			}
			usage, _ := b.Usage()
			unlock := lockOut(t, path)
			var all sync.WaitGroup
			var panics, refused atomic.Int64
			for i := range callers {
				all.Go(func() {
					defer func() {
						if p := recover(); p != nil {
							panics.Add(1)
							if !strings.Contains(fmt.Sprint(p), "struck at "+point) {
								t.Errorf("panic %v", p)
							}
						}
					}()
					if _, err := TryReserve(b, p, fmt.Sprint("s", i), Policy); err != nil {
						refused.Add(1)
					}
				})
			}
			realtest.Eventually(t, wait, "all to wait for one commit", func() bool { return b.Waiting() == callers })
			armed.Store(true)
			unlock()
			all.Wait()
			armed.Store(false)
			if int(panics.Load()) != want.panics || refused.Load() != 0 {
				t.Errorf("%d callers met the panic and %d were refused, of %d", panics.Load(), refused.Load(), callers)
			}
			reserved := func() int { u, _ := b.Usage(); return u[0].ByState[ipam.Reserved] }
			if n := reserved() - usage[0].ByState[ipam.Reserved]; (n == callers) != want.durable || (n == 0) == want.durable {
				t.Errorf("%d of %d are reserved", n, callers)
			}
			if point == "prune" && b.Info().Growing == nil {
				t.Error("that the history was not pruned is not reported")
			}
			if err := b.Tidy(ctx); err != nil {
				t.Error(err)
			}
			Check(t, b)
			Reserve(t, b, "after")
			before := reserved()
			Close(t, b)
			if b = OpenAt(t, path, opts); reserved() != before {
				t.Errorf("after a restart %d are reserved, and were %d", reserved(), before)
			}
		})
	}
}

// asDoomed makes the test binary a process whose book cannot be read anew.
const asDoomed = "IPAMD_NETDB_AS_DOOMED"

// F6: a commit that is durable, could not be published and cannot be read again
// ends the process, and so nothing is answered from half an index.
func TestF6AnIndexThatCannotBeReadAgain(t *testing.T) {
	if path := os.Getenv(asDoomed); path != "" {
		b, err := netdb.Open(path, netdb.Failing(Options(), func(at string) {
			if at == "publish" || at == "read anew" {
				panic("struck at " + at)
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { fmt.Println("it is served on:", recover()) }()
		l, err := TryReserve(b, b.Pools()[0], "doomed", Policy)
		fmt.Println("it was answered:", l, err)
		return
	}
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	Close(t, b)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestF6AnIndexThatCannotBeReadAgain$")
	cmd.Env = append(os.Environ(), asDoomed+"="+path)
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(output), "struck at read anew") || strings.Contains(string(output), "it ") {
		t.Errorf("it ended with %v and said\n%s", err, output)
	}
	b = OpenAt(t, path, Options())
	if ls, _ := b.Leases(); !slices.ContainsFunc(ls, func(l *ipam.Lease) bool { return l.Sandbox == "doomed" }) {
		t.Error("the commit was not durable: it shows nothing")
	}
}
