// Command cri makes and removes pod sandboxes of a containerd as a kubelet does, and says
// whether its network is ready. Each call is one line of answer.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: cri SOCKET status | run NAME | ip ID | stop ID | rm ID")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := call(ctx, os.Args[1], os.Args[2], strings.Join(os.Args[3:], " "))
	if err != nil {
		fmt.Fprintln(os.Stderr, "cri:", err)
		os.Exit(1)
	}
	fmt.Println(answer)
}

func call(ctx context.Context, socket, verb, of string) (string, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	c := cri.NewRuntimeServiceClient(conn)
	switch verb {
	case "status":
		r, err := c.Status(ctx, &cri.StatusRequest{})
		if err != nil {
			return "", err
		}
		for _, is := range r.Status.Conditions {
			if is.Type == "NetworkReady" {
				return fmt.Sprint(is.Status, " ", is.Message), nil
			}
		}
		return "", fmt.Errorf("no word of the network in %v", r.Status)
	case "run":
		r, err := c.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{
			Metadata: &cri.PodSandboxMetadata{Name: of, Uid: "uid-" + of, Namespace: "ns"},
			Linux: &cri.LinuxPodSandboxConfig{CgroupParent: "/cri-test", SecurityContext: &cri.LinuxSandboxSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_POD}}},
		}})
		return r.GetPodSandboxId(), err
	case "ip":
		r, err := c.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: of})
		return r.GetStatus().GetNetwork().GetIp(), err
	case "stop":
		_, err := c.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: of})
		return "", err
	case "rm":
		_, err := c.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: of})
		return "", err
	}
	return "", fmt.Errorf("%q is no verb", verb)
}
