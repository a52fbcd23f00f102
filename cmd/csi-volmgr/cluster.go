package main

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// inCluster stands for the service account of the pod that the daemon runs in.
const inCluster = "in-cluster"

// clusterConfig returns how to reach the API server; nil for "", no cluster.
func clusterConfig(kubeconfig string) (*rest.Config, error) {
	switch kubeconfig {
	case "":
		return nil, nil
	case inCluster:
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig=%s: %w", inCluster, err)
		}
		return c, nil
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%s: %w", kubeconfig, err)
	}
	return c, nil
}
