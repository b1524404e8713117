package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// A machine is where numbers were measured. Without it they are worth nothing.
type machine struct {
	cpu, kernel, golang, redis, date string
	cores                            int
}

// describe looks at the machine; redis is the server's version, and where it comes from.
func describe(redis string) machine {
	m := machine{
		cpu: "unknown", kernel: runtime.GOOS, golang: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
		redis: redis, date: time.Now().UTC().Format("2 January 2006"), cores: runtime.NumCPU(),
	}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.cpu = model(string(b))
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.kernel = "Linux " + strings.TrimSpace(string(b))
	}
	return m
}

// model finds the processor's name in /proc/cpuinfo.
func model(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

func (m machine) section() string {
	return fmt.Sprintf("| | |\n|---|---|\n| CPU | %s, %d cores; clients and servers share them |\n| kernel | %s |\n| Go | %s |\n| server | %s |\n| measured | %s |\n",
		m.cpu, m.cores, m.kernel, m.golang, m.redis, m.date)
}
