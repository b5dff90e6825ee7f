// Package supervisor owns what systemd and readiness know of a running daemon: that
// it is up, its status line, and proofs that its parts answer.
//
// It guarantees that systemd's watchdog is notified only after each part has answered.
// It restarts and repairs nothing: systemd does, and parts do.
package supervisor
