package idempotency

import (
	"context"
	"errors"
	"slices"
	"strings"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// outcome is what a gRPC handler has returned.
type outcome struct {
	Reply []byte // an anypb.Any; if there is none, Error is a google.rpc.Status
	Error []byte
}

// Unary does each call of these methods (/package.Service/Method) once for each idempotency-key of a caller, which is
// in the metadata, and passes other methods on. caller names the sender, as for [Once.Handler].
//
// The reply or the error of the handler is kept; headers and trailers are not. An error with the code Unavailable is
// returned and not kept: with it the handler says that it has done nothing, and that the call may come again.
func (o *Once) Unary(caller func(context.Context) string, methods ...string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !slices.Contains(methods, info.FullMethod) {
			return handler(ctx, req)
		}
		id, err := idOf(caller(ctx), metadata.ValueFromIncomingContext(ctx, "idempotency-key"))
		if err != nil {
			return nil, statusOf(ctx, err)
		}
		body, err := proto.MarshalOptions{Deterministic: true}.Marshal(req.(proto.Message))
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		answer, err := do(ctx, o, id, fingerprint(info.FullMethod, string(body)), func(ctx context.Context) (outcome, bool) {
			reply, err := handler(ctx, req)
			return pack(reply, err), status.Code(err) != codes.Unavailable
		})
		if err != nil {
			return nil, statusOf(ctx, err)
		}
		return unpack(answer)
	}
}

func statusOf(ctx context.Context, err error) error {
	no := refusalFor(ctx, err)
	return status.Error(no.code, no.text)
}

func pack(reply any, err error) outcome {
	if err == nil {
		var text []byte
		if text, err = wrap(reply.(proto.Message)); err == nil {
			return outcome{Reply: text}
		}
	}
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err) // as gRPC does
	}
	failed := s.Proto()
	failed.Message = strings.ToValidUTF8(failed.Message, "?") // which a Status needs
	text, _ := proto.Marshal(failed)
	return outcome{Error: text}
}

func wrap(reply proto.Message) ([]byte, error) {
	wrapped, err := anypb.New(reply)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(wrapped)
}

func unpack(packed outcome) (any, error) {
	var failed spb.Status
	var wrapped anypb.Any
	if err := errors.Join(proto.Unmarshal(packed.Error, &failed), proto.Unmarshal(packed.Reply, &wrapped)); err != nil {
		return nil, err
	}
	if err := status.ErrorProto(&failed); err != nil {
		return nil, err
	}
	return wrapped.UnmarshalNew()
}
