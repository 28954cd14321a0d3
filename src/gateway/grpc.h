// gRPC through the gateway. Its clients cannot put a prefix before their paths, so a call names its
// endpoint elsewhere; and they understand a status of gRPC better than one of HTTP.
#pragma once

#include "gateway/proxy.h"

namespace billow::gateway {

// Metadata that names the endpoint of a call.
inline constexpr char grpc_endpoint_header[] = "Billow-Endpoint";

bool is_grpc(const net::HttpParser::Head& head);
// The endpoint that a call names: by metadata, or by the first label of its authority
// ("NAME.example.org"). Empty: none, so its path does (/f/NAME/…).
std::string_view grpc_endpoint(const net::HttpParser::Head& head);
// The fields of an answer without a body that reports an error of the gateway.
void write_grpc_error(net::Http2Fields& out, const net::Response& response, const Front& front);
// Of HTTP to those of gRPC, as gRPC's clients do.
int grpc_code(int http_status);
int http_status_of_grpc(std::string_view grpc_status);
// Whether a status says that the server failed, not that the call was wrong.
bool is_grpc_server_fault(std::string_view grpc_status);

// The message that asks for a service's health (grpc.health.v1), and whether an answer to it says
// that it serves.
std::string grpc_health_request(std::string_view service);
bool grpc_health_serving(std::string_view answer);

}  // namespace billow::gateway
