package plumb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// SlotFolder is where namespaces of warm slots are, as those of iproute2.
const SlotFolder = "/run/netns"

// slotPrefix is what names of a runner's slots begin with. Two runners of one machine
// never take each other's for their own.
func slotPrefix(runner string) string {
	sum := sha256.Sum256([]byte("ipamd slots of " + runner))
	return "ipamd-" + hex.EncodeToString(sum[:4]) + "-"
}

// SlotPath is the path of the namespace of a runner's slot.
func SlotPath(runner, slot string) string {
	return filepath.Join(SlotFolder, slotPrefix(runner)+slot)
}

// SlotPaths lists the namespaces that are named as a runner's slots are, also half made ones.
func SlotPaths(runner string) ([]string, error) {
	all, err := os.ReadDir(SlotFolder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list warm slots: %w", err)
	}
	out := []string{}
	for _, e := range all {
		if strings.HasPrefix(e.Name(), slotPrefix(runner)) {
			out = append(out, filepath.Join(SlotFolder, e.Name()))
		}
	}
	return out, nil
}

// IsSlotPath says whether a path is one that a runner's slot may have: no other file is
// ever made or removed for one.
func IsSlotPath(runner, path string) bool {
	if !strings.HasPrefix(path, SlotFolder+"/ipamd-") { // asked of every lease: most are set apart without a hash
		return false
	}
	return filepath.Clean(path) == path && filepath.Dir(path) == SlotFolder && strings.HasPrefix(filepath.Base(path), slotPrefix(runner))
}

// MakeSlot makes a namespace at a path of a runner's slots, with the port of the spec in it,
// or finishes what was begun. What fails leaves neither.
func MakeSlot(ctx context.Context, runner string, s Spec) (Port, error) {
	if !IsSlotPath(runner, s.Netns) {
		return Port{}, invalid("netns", s.Netns, "it is no path of a warm slot of this runner")
	}
	if err := s.Validate(); err != nil {
		return Port{}, fmt.Errorf("make slot: %w", err)
	}
	err := MakeNetns(s.Netns)
	if errors.Is(err, fs.ErrExist) { // begun before
		ns, _, broken := openNetns(s.Netns)
		_ = ns.Close()
		if err = nil; broken != nil { // killed before anything was mounted on the file
			err = errors.Join(RemoveNetns(s.Netns), MakeNetns(s.Netns))
		}
	}
	if err != nil {
		return Port{}, err
	}
	port, err := Make(ctx, s)
	if err != nil {
		err = errors.Join(err, RemoveSlot(context.WithoutCancel(ctx), runner, s.Netns, s.Host, s.Owner))
	}
	return port, err
}

// RemoveSlot takes a slot's port away and its namespace. What is not there is no error. The
// port goes first: a process in the namespace would keep it, and the address with it.
func RemoveSlot(ctx context.Context, runner, path, host, owner string) error {
	if !IsSlotPath(runner, path) {
		return invalid("netns", path, "it is no path of a warm slot of this runner")
	}
	if host != "" {
		if err := Remove(ctx, host, owner); err != nil {
			return err
		}
	}
	return RemoveNetns(path)
}
