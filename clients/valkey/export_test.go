// Code generated from clients/rueidis by generated_test.go. DO NOT EDIT.

// Examples need this of the tests.
package valkeynode

var url string // set by TestMain

// URL leads examples to the tests' server.
func URL() string { return url }
