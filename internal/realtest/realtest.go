// Package realtest decides whether a test on real parts can run here, and
// waits for what real parts do.
//
// A laptop without root or without a program skips such a test and says why.
// Under CI=true the same lack fails the test: a promise that was not checked
// is not kept.
package realtest

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// Root skips a test that is not run by root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Lack(t, "needs root: it makes network namespaces and mounts")
	}
}

// Need skips a test when one of the programs is not in PATH.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			Lack(t, "needs the program "+p+", which is not in PATH")
		}
	}
}

// Lack skips a test that misses what reason says.
func Lack(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s, and under CI=true nothing is skipped", reason)
	}
	t.Skip(reason)
}

// Long skips a test that lasts for seconds where only the quick ones are asked for, by
// -short.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		Lack(t, "lasts for seconds, and -short asks for the quick tests")
	}
}

// usualPause is shorter than what a test waits for lasts at the least. A question that takes long is followed by a pause
// pauseFactor times as long, of longestPause at the most: what is waited for has most of the processor.
const (
	usualPause   = 10 * time.Millisecond
	pauseFactor  = 4
	longestPause = 200 * time.Millisecond
)

// Eventually asks ok until it says yes, and fails the test when it has not by the end of
// timeout. It asks every millisecond at first, and the longer it lasts the less often, up to
// every [usualPause], and less often where asking takes long: a question may be a call to a daemon
// that needs the processor itself, or a program that is started for it.
// Whatever passes between two questions counts for a twentieth of timeout at most: a machine
// that stands still, for however long, leaves those who are waited for their time.
func Eventually(t testing.TB, timeout time.Duration, what string, ok func() bool) {
	t.Helper()
	last := time.Now()
	for left := timeout; ; {
		asked := time.Now()
		if ok() {
			return
		}
		if left <= 0 {
			t.Fatalf("not within %v: %s", timeout, what)
		}
		now := time.Now()
		pause := min(time.Millisecond+(timeout-left)/32, usualPause)
		left -= min(now.Sub(last), timeout/20)
		last = now
		time.Sleep(max(pause, min(pauseFactor*now.Sub(asked), longestPause)))
	}
}
