package peers

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/amazon-vpc-cni-k8s/pkg/ipamd/datastore"
	"github.com/aws/amazon-vpc-cni-k8s/pkg/utils/logger"
)

// An aws is the datastore of the AWS VPC CNI's daemon with its checkpoint: all
// leases as JSON in a new file, synced and renamed over the old one, with each
// change. Its gRPC server is left out.
type aws struct{ store *datastore.DataStore }

// AWS has the datastore read a checkpoint of the taken addresses below dir.
// Without a pod's name the reader does not look for its link. EC2 attaches
// prefixes of 16 addresses to a network interface: as many as are taken, and some
// to spare.
func AWS(t testing.TB, dir string, prefix netip.Prefix, taken int) Store {
	const eni, blockBits, spare = "eni-1", 28, 16
	// Else each release leaves a row for 30 s, and slows the next call.
	if err := os.Setenv("IP_COOLDOWN_PERIOD", "0"); err != nil {
		t.Fatal(err)
	}
	data := datastore.CheckpointData{Version: datastore.CheckpointFormatVersion}
	for i, addr := range takenOf(prefix, taken) {
		data.Allocations = append(data.Allocations, datastore.CheckpointEntry{IPAMKey: key(fmt.Sprintf("taken-%d", i)), IPv4: addr.String()})
	}
	written, err := json.Marshal(data)
	path := filepath.Join(dir, "ipam.json")
	if err == nil {
		err = os.WriteFile(path, written, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	log := logger.New(&logger.Configuration{LogLevel: "Fatal", LogLocation: "stderr"})
	a := &aws{datastore.NewDataStore(log, datastore.NewJSONFile(path), true, 0)}
	err = a.store.AddENI(eni, 0, true, false, false, 0, "")
	first := prefix.Masked().Addr().As4()
	for n := range (taken+2)/16 + 1 + spare {
		block := net.IPNet{IP: net.IPv4(first[0], first[1], byte(n>>4), byte(n<<4)).To4(), Mask: net.CIDRMask(blockBits, 32)}
		if err == nil {
			err = a.store.AddIPv4CidrToStore(eni, block, true)
		}
	}
	if err == nil {
		err = a.store.ReadBackingStore(false)
	}
	if got := len(a.store.AllocatedIPs()); err != nil || got != taken {
		t.Fatalf("AWS's datastore read %d of %d leases: %v", got, taken, err)
	}
	return a
}

func key(sandbox string) datastore.IPAMKey {
	return datastore.IPAMKey{NetworkName: "aws-cni", ContainerID: sandbox, IfName: "eth0"}
}

func (a *aws) Allocate(sandbox string) (netip.Addr, error) {
	ip, _, _, err := a.store.AssignPodIPv4Address(key(sandbox), datastore.IPAMMetadata{})
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(ip)
}

func (a *aws) Undo(sandbox string, _ netip.Addr) error {
	_, _, _, _, _, err := a.store.UnassignPodIPAddress(key(sandbox))
	return err
}
