// A caller of containerd's CRI as a kubelet is one, for the tests of CNI, in a module of
// its own, so that the daemon's go.mod gains nothing from it.
module github.com/ipamd/ipamd/tools/cri

go 1.26.6

require (
	google.golang.org/grpc v1.83.2
	k8s.io/cri-api v0.34.1
)

require (
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
