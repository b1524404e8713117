package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/lab/play/page"
)

func playCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "play",
		Short: "Write a page on which you move clients and servers by hand",
		Long: `Play writes one HTML file, in which the locks run: in a browser you say what clients do,
which messages arrive, when time goes by, and what fails. Where two believe that they hold the
lock, or a late write gets through, the page shows it. It needs no server and no network.

The locks are compiled for the browser by the go command in your PATH, which takes a minute
the first time. So it is run from the repository: go run -C lab ./cmd/lab play`,
		Example: `  lab play                # locks-play.html
  lab play -o play.html`,
		Args: cobra.NoArgs,
		RunE: cli.Does(func(cmd *cobra.Command) error {
			if output == "" {
				return errors.New("--output names no file")
			}
			var b bytes.Buffer
			if err := page.Write(cmd.Context(), &b); err != nil {
				return err
			}
			if err := os.WriteFile(output, b.Bytes(), 0o644); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is written: open it in a browser.\n", output)
			return nil
		}),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "locks-play.html", "write this `file`, in place of what is there")
	cmd.MarkFlagFilename("output", "html")
	return cmd
}
