// Examples need this of the tests.
package rueidisnode

var url string // set by TestMain

// URL leads examples to the tests' server.
func URL() string { return url }
