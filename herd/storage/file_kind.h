// Tells what is at a path, and what a folder holds. Only a path where nothing exists counts as nothing. Other refusals
// of the system (no permission, a disk or a network that fails) throw kStorage with its reason and a fix. Links are
// followed where `files` follows them; else a link is kOther, and one on the way to a path throws. Threads: any.
#pragma once

#include <filesystem>
#include <vector>

#include "herd/storage/file_system.h"

namespace herd {

enum class FileKind { kNothing, kFile, kFolder, kOther };
FileKind kind_of(const std::filesystem::path& path, const FileSystem& files = FileSystem::system());
bool is_file(const std::filesystem::path& path, const FileSystem& files = FileSystem::system());
bool is_folder(const std::filesystem::path& path, const FileSystem& files = FileSystem::system());
bool is_link(const std::filesystem::path& path, const FileSystem& files = FileSystem::system());
// Is also true for a link that leads nowhere.
bool is_taken(const std::filesystem::path& path, const FileSystem& files = FileSystem::system());

// Returns the paths in a folder, in no order; none where nothing exists.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder,
                                              const FileSystem& files = FileSystem::system());

}  // namespace herd
