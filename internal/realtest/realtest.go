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

// Eventually asks ok every millisecond until it says yes, and fails the test
// when it has not by the end of timeout. Whatever passes between two questions
// counts for a twentieth of timeout at most: a machine that stands still, for
// however long, leaves those who are waited for their time.
func Eventually(t testing.TB, timeout time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	last := time.Now()
	for left := timeout; ; <-tick.C {
		if ok() {
			return
		}
		if left <= 0 {
			t.Fatalf("not within %v: %s", timeout, what)
		}
		now := time.Now()
		left -= min(now.Sub(last), timeout/20)
		last = now
	}
}
