package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/devnet"
	"github.com/ipamd/ipamd/internal/logging"
)

// devDir holds a development daemon's book and socket, below the working
// directory.
const devDir = "run"

// devNetns names a development daemon's network namespace.
var devNetns = filepath.Join(devDir, "netns")

// runDev runs a development daemon in the network namespace that was made for it. One
// that is in use is refused: a bridge is made and forwarding switched on here.
func (c *command) runDev(ctx context.Context) error {
	switch link, err := devnet.InUse(); {
	case c.again:
	case err != nil:
		return err
	case link != "":
		return usageError{fmt.Errorf("this network namespace is in use: %s is up; --dev makes its own", link)}
	}
	wd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	cfg, err := config.Development(filepath.Join(wd, devDir))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.err, `a development daemon, in a network namespace of its own
  ask it:         ipamctl --socket %s status
  its network:    nsenter --net=%s ip address
  its book:       %s
  its runtime:    %s
  stop it:        Ctrl-C; its network and its book stay
  end them, too:  umount %[2]s; rm -r %[5]s
`, cfg.Socket.Path, filepath.Join(wd, devNetns), cfg.Book.Path, cfg.Runtime.Kind, filepath.Join(wd, devDir))
	queue, log := logging.NewQueue(logging.New(cfg.Log.Format, logging.Level(cfg.Log.Level), c.err, os.Getenv))
	defer queue.Close()
	return serve(ctx, newProgram(cfg, log, thisBuild()))
}
